"""Tables of runs and their tokens. The row owns the run; streams and messages only carry its news."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Float, ForeignKey, Index, Integer, LargeBinary, String, func, select
from sqlalchemy import text as sql_text
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.sql.elements import ColumnElement

from models.db.base import Base, LosslessText
from models.db.experiments import Experiment
from models.events import RunKind

PRODUCTIVE_TOKENS: Final = 4
"""So many tokens of an attempt bring a run on. Fewer need not: what a worker had picked and not yet told when it died
is picked again by the next attempt, and a run that always dies at the same place would seem to move."""

LISTED: Final = (
    "checkpoint", "stop_reason", "status", "temperature", "num_tokens", "tokens_per_s", "mean_logprob", "mean_entropy",
)  # fmt: skip
"""The columns by which the history filters or sorts, each with an index that goes on in the order of ids."""

SETTINGS: Final = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "num_beams", "max_tokens",
)  # fmt: skip
"""The settings that have a column of their own besides `settings`, as numbers to filter by."""

_FILTERED: Final = (
    "id", "deleted_at", "created_at", "kind", "checkpoint", "status", "stop_reason", "is_starred", "experiment_id",
    "seed", *SETTINGS, "num_tokens", "tokens_per_s", "mean_logprob", "mean_entropy",
)  # fmt: skip


def _setting(name: str) -> Any:
    """The default of a column of SETTINGS."""

    def value_of(context: Any) -> float | None:
        value = context.get_current_parameters()["settings"].get(name)
        return float(value) if isinstance(value, int | float) else None

    return mapped_column(Float, default=value_of)


class Run(Base):
    """One request of a user, from submit to its one ending."""

    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)  # UUIDv7: sorts by time
    kind: Mapped[str] = mapped_column(String(16), default=RunKind.GENERATE.value)
    owner: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(index=True)
    enqueued_at: Mapped[datetime | None]  # the last time its id was put on the queue
    started_at: Mapped[datetime | None]  # the first claim
    ended_at: Mapped[datetime | None]

    experiment_id: Mapped[str | None] = mapped_column(String(36), ForeignKey(Experiment.id, ondelete="SET NULL"))
    arm_index: Mapped[int | None]
    sample_index: Mapped[int | None]
    parent_id: Mapped[str | None] = mapped_column(String(36), ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    fork_position: Mapped[int | None]

    checkpoint: Mapped[str] = mapped_column(String(128))
    checkpoint_revision: Mapped[str | None] = mapped_column(String(128))
    weights_digest: Mapped[str | None] = mapped_column(String(64))
    prompt: Mapped[str]
    given_text: Mapped[str | None] = mapped_column(LosslessText)  # of a run of kind `score`: what it scores
    messages: Mapped[list[Any] | None]
    prompt_token_ids: Mapped[list[Any] | None]  # known from the first claim on; of a branch, from its submit on
    opening_ids: Mapped[list[Any] | None]  # of a branch: the tokens that its output begins with
    settings: Mapped[dict[str, Any]]  # models.sampling.Settings.as_dict(), seed included
    seed: Mapped[str] = mapped_column(String(20))  # decimal: 64 bits do not fit a signed column
    # Those of `settings`, once more as numbers to filter by.
    temperature: Mapped[float | None] = _setting("temperature")
    top_k: Mapped[float | None] = _setting("top_k")  # may be too large for a database's integer
    top_p: Mapped[float | None] = _setting("top_p")
    min_p: Mapped[float | None] = _setting("min_p")
    typical_p: Mapped[float | None] = _setting("typical_p")
    repetition_penalty: Mapped[float | None] = _setting("repetition_penalty")
    presence_penalty: Mapped[float | None] = _setting("presence_penalty")
    frequency_penalty: Mapped[float | None] = _setting("frequency_penalty")
    num_beams: Mapped[float | None] = _setting("num_beams")
    max_tokens: Mapped[float | None] = _setting("max_tokens")

    status: Mapped[str] = mapped_column(String(16))
    attempt: Mapped[int] = mapped_column(default=0)
    lease_owner: Mapped[str | None] = mapped_column(String(64))
    lease_until: Mapped[datetime | None]  # database clock
    cancel_requested: Mapped[bool] = mapped_column(Boolean, default=False)
    milestones: Mapped[list[Any]] = mapped_column(default=list)  # every event but the tokens, as JSON values
    ended_published: Mapped[bool] = mapped_column(Boolean, default=False)

    stop_reason: Mapped[str | None] = mapped_column(String(32))
    stop: Mapped[dict[str, Any] | None]  # models.events.StopRecord
    text: Mapped[str] = mapped_column(LosslessText, default="")
    num_prompt_tokens: Mapped[int | None]
    num_tokens: Mapped[int] = mapped_column(default=0)
    mean_logprob: Mapped[float | None] = mapped_column(Float)  # raw, nats per token
    min_logprob: Mapped[float | None] = mapped_column(Float)
    max_rank: Mapped[int | None]
    mean_entropy: Mapped[float | None] = mapped_column(Float)
    ttft_ms: Mapped[float | None] = mapped_column(Float)
    tokens_per_s: Mapped[float | None] = mapped_column(Float)
    timing: Mapped[dict[str, Any] | None]  # models.events.Timing
    passes: Mapped[dict[str, Any] | None]  # models.events.Passes
    kv_positions: Mapped[int | None]
    kv_bytes: Mapped[int | None] = mapped_column(BigInteger)
    capsule: Mapped[dict[str, Any] | None]  # versions, device, dtype, batch mode, weights digest

    title: Mapped[str | None]
    note: Mapped[str | None]
    is_starred: Mapped[bool] = mapped_column(Boolean, default=False)
    tags: Mapped[list[Any]] = mapped_column(default=list)
    # Set: the run is hidden, and purged a while later unless the deletion is undone.
    deleted_at: Mapped[datetime | None]

    __table_args__ = (
        Index("ix_runs_status_lease_until", "status", "lease_until"),
        *(
            Index(
                f"ix_runs_listed_{column}",
                column,
                "id",
                sqlite_where=sql_text("deleted_at IS NULL"),
                postgresql_where=sql_text("deleted_at IS NULL"),
            )
            for column in LISTED
        ),
        # Whatever is asked for together is answered from this index alone, in the order of ids: the rows of the table
        # are twenty times as large, because their texts lie in them.
        Index(
            "ix_runs_filtered",
            *_FILTERED,
            sqlite_where=sql_text("deleted_at IS NULL"),
            postgresql_where=sql_text("deleted_at IS NULL"),
        ),
        Index("ix_runs_experiment_id_id", "experiment_id", "id"),
        Index(
            "ix_runs_starred",
            "id",
            sqlite_where=sql_text("is_starred IS 1"),
            postgresql_where=sql_text("is_starred IS true"),
        ),
        Index(
            "ix_runs_deleted_at",
            "deleted_at",
            sqlite_where=sql_text("deleted_at IS NOT NULL"),
            postgresql_where=sql_text("deleted_at IS NOT NULL"),
        ),
        # Asked for every few seconds by every worker, and nearly always empty.
        Index(
            "ix_runs_ended_unpublished",
            "ended_at",
            sqlite_where=sql_text("ended_published IS 0"),
            postgresql_where=sql_text("ended_published IS false"),
        ),
    )


class Token(Base):
    """One generated token. Together with `Run.milestones` it rebuilds the run's event history exactly."""

    __tablename__ = "tokens"

    run_id: Mapped[str] = mapped_column(String(36), ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    seq: Mapped[int]
    attempt: Mapped[int]
    token_id: Mapped[int]
    piece: Mapped[str]
    token_bytes: Mapped[bytes] = mapped_column(LargeBinary)
    text: Mapped[str]
    is_visible: Mapped[bool] = mapped_column(Boolean)
    is_withheld: Mapped[bool] = mapped_column(Boolean)
    raw_logprob: Mapped[float] = mapped_column(Float(53))
    logprob: Mapped[float | None] = mapped_column(Float(53))  # None: the settings make this token impossible
    rank: Mapped[int]
    entropy: Mapped[float] = mapped_column(Float(53))
    elapsed_ms: Mapped[float] = mapped_column(Float(53))
    ledger: Mapped[bytes] = mapped_column(LargeBinary)  # models.db.ledger: the rest of the event, compact


def productive_attempt() -> ColumnElement[int]:
    """For a query over `Run`: the last attempt that brought the run on by PRODUCTIVE_TOKENS, 0 where none did."""
    brought_on = (
        select(Token.attempt)
        .where(Token.run_id == Run.id)
        .group_by(Token.attempt)
        .having(func.count() >= PRODUCTIVE_TOKENS)
        .order_by(Token.attempt.desc())
        .limit(1)
    )
    return func.coalesce(brought_on.correlate(Run).scalar_subquery(), 0)
