"""Filters of the history by settings; indices for any filters together and for short beginnings of words."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from alembic import op

from migrations import run_search

revision: str = "0006"
down_revision: str | Sequence[str] | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_SETTINGS: Final = (
    "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "num_beams",
    "max_tokens",
)  # fmt: skip
_FILTERED: Final = (
    "id", "deleted_at", "created_at", "kind", "checkpoint", "status", "stop_reason", "is_starred", "experiment_id",
    "seed", "temperature", *_SETTINGS, "num_tokens", "tokens_per_s", "mean_logprob", "mean_entropy",
)  # fmt: skip
# The value of a setting that is a number, of rows of any version.
_VALUE: Final = {
    "sqlite": "CASE WHEN json_type(settings, '$.{0}') IN ('integer', 'real') "
    "THEN CAST(json_extract(settings, '$.{0}') AS REAL) END",
    "postgresql": "CASE WHEN json_typeof(settings->'{0}') = 'number' "
    "THEN CAST(settings->>'{0}' AS double precision) END",
}


def upgrade() -> None:
    kind = op.get_bind().dialect.name
    for name in _SETTINGS:
        op.add_column("runs", sa.Column(name, sa.Float(), nullable=True))
    op.execute("UPDATE runs SET " + ", ".join(f"{name} = {_VALUE[kind].format(name)}" for name in _SETTINGS))
    there = sa.text("deleted_at IS NULL")
    op.create_index("ix_runs_filtered", "runs", [*_FILTERED], sqlite_where=there, postgresql_where=there)
    if kind == "sqlite":
        run_search.drop(op.get_bind())  # made again with what short beginnings need
        run_search.create(op.get_bind())
    else:
        # A search reads the whole list of what has not been sorted in yet; a run is saved seldom enough to do it then.
        op.execute("ALTER INDEX ix_run_search_words SET (fastupdate = off)")
        op.execute("SELECT gin_clean_pending_list('ix_run_search_words')")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER INDEX ix_run_search_words RESET (fastupdate)")
    op.drop_index("ix_runs_filtered", "runs")
    for name in _SETTINGS:
        op.drop_column("runs", name)
