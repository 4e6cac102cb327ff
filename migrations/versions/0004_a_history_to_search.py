"""The history: an index of words, indices in the order of its lists, deletion that can be undone."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from alembic import op

from migrations import run_search

revision: str = "0004"
down_revision: str | Sequence[str] | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_LISTED: Final = (
    "checkpoint", "stop_reason", "status", "temperature", "num_tokens", "tokens_per_s", "mean_logprob", "mean_entropy",
)  # fmt: skip
_TEMPERATURE: Final = {
    "sqlite": "UPDATE runs SET temperature = json_extract(settings, '$.temperature')",
    "postgresql": "UPDATE runs SET temperature = CAST(settings->>'temperature' AS double precision) "
    "WHERE json_typeof(settings->'temperature') = 'number'",
}


def upgrade() -> None:
    op.add_column("runs", sa.Column("temperature", sa.Float(), nullable=True))
    op.add_column("runs", sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("experiments", sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True))
    connection = op.get_bind()
    op.execute(_TEMPERATURE[connection.dialect.name])
    there = sa.text("deleted_at IS NULL")
    for column in _LISTED:
        op.create_index(f"ix_runs_listed_{column}", "runs", [column, "id"], sqlite_where=there, postgresql_where=there)
    op.create_index("ix_runs_experiment_id_id", "runs", ["experiment_id", "id"])
    op.create_index(
        "ix_runs_starred",
        "runs",
        ["id"],
        sqlite_where=sa.text("is_starred IS 1"),
        postgresql_where=sa.text("is_starred IS true"),
    )
    gone = sa.text("deleted_at IS NOT NULL")
    op.create_index("ix_runs_deleted_at", "runs", ["deleted_at"], sqlite_where=gone, postgresql_where=gone)
    for name in ("ix_runs_checkpoint_created_at", "ix_runs_stop_reason_created_at", "ix_runs_experiment_id"):
        op.drop_index(name, "runs")
    run_search.create(connection)


def downgrade() -> None:
    connection = op.get_bind()
    run_search.drop(connection)
    op.execute("DELETE FROM tokens WHERE run_id IN (SELECT id FROM runs WHERE deleted_at IS NOT NULL)")
    op.execute("UPDATE runs SET parent_id = NULL WHERE parent_id IN (SELECT id FROM runs WHERE deleted_at IS NOT NULL)")
    op.execute("DELETE FROM runs WHERE deleted_at IS NOT NULL")
    op.execute(
        "UPDATE runs SET experiment_id = NULL WHERE experiment_id IN "
        "(SELECT id FROM experiments WHERE deleted_at IS NOT NULL)"
    )
    op.execute("DELETE FROM experiments WHERE deleted_at IS NOT NULL")
    for column in _LISTED:
        op.drop_index(f"ix_runs_listed_{column}", "runs")
    for name in ("ix_runs_experiment_id_id", "ix_runs_starred", "ix_runs_deleted_at"):
        op.drop_index(name, "runs")
    op.drop_column("experiments", "deleted_at")
    op.drop_column("runs", "deleted_at")
    op.drop_column("runs", "temperature")
    op.create_index("ix_runs_checkpoint_created_at", "runs", ["checkpoint", "created_at"])
    op.create_index("ix_runs_stop_reason_created_at", "runs", ["stop_reason", "created_at"])
    op.create_index("ix_runs_experiment_id", "runs", ["experiment_id"])
