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

    experiment_id: Mapped[str | None] = mapped_column(
        String(36), ForeignKey(Experiment.id, ondelete="SET NULL"), index=True
    )
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
    prompt_token_ids: Mapped[list[Any] | None]  # known from the first claim on
    settings: Mapped[dict[str, Any]]  # models.sampling.Settings.as_dict(), seed included
    seed: Mapped[str] = mapped_column(String(20))  # decimal: 64 bits do not fit a signed column

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

    __table_args__ = (
        Index("ix_runs_status_lease_until", "status", "lease_until"),
        Index("ix_runs_checkpoint_created_at", "checkpoint", "created_at"),
        Index("ix_runs_stop_reason_created_at", "stop_reason", "created_at"),
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
