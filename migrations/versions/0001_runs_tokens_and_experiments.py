"""Runs, their tokens and experiments."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | Sequence[str] | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "experiments",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("checkpoint", sa.String(length=128), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("num_arms", sa.Integer(), nullable=False),
        sa.Column("baseline_index", sa.Integer(), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiments")),
    )
    op.create_index(op.f("ix_experiments_created_at"), "experiments", ["created_at"], unique=False)

    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("enqueued_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("experiment_id", sa.String(length=36), nullable=True),
        sa.Column("arm_index", sa.Integer(), nullable=True),
        sa.Column("sample_index", sa.Integer(), nullable=True),
        sa.Column("parent_id", sa.String(length=36), nullable=True),
        sa.Column("fork_position", sa.Integer(), nullable=True),
        sa.Column("checkpoint", sa.String(length=128), nullable=False),
        sa.Column("checkpoint_revision", sa.String(length=128), nullable=True),
        sa.Column("weights_digest", sa.String(length=64), nullable=True),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("messages", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("prompt_token_ids", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("settings", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("seed", sa.String(length=20), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lease_owner", sa.String(length=64), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("milestones", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("ended_published", sa.Boolean(), nullable=False),
        sa.Column("stop_reason", sa.String(length=32), nullable=True),
        sa.Column("stop", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("num_prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("num_tokens", sa.Integer(), nullable=False),
        sa.Column("mean_logprob", sa.Float(), nullable=True),
        sa.Column("min_logprob", sa.Float(), nullable=True),
        sa.Column("max_rank", sa.Integer(), nullable=True),
        sa.Column("mean_entropy", sa.Float(), nullable=True),
        sa.Column("ttft_ms", sa.Float(), nullable=True),
        sa.Column("tokens_per_s", sa.Float(), nullable=True),
        sa.Column("timing", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("passes", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("kv_positions", sa.Integer(), nullable=True),
        sa.Column("kv_bytes", sa.BigInteger(), nullable=True),
        sa.Column("capsule", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("is_starred", sa.Boolean(), nullable=False),
        sa.Column("tags", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_runs_experiment_id_experiments"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["parent_id"], ["runs.id"], name=op.f("fk_runs_parent_id_runs"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index("ix_runs_checkpoint_created_at", "runs", ["checkpoint", "created_at"], unique=False)
    op.create_index(op.f("ix_runs_created_at"), "runs", ["created_at"], unique=False)
    op.create_index(
        "ix_runs_ended_unpublished",
        "runs",
        ["ended_at"],
        unique=False,
        sqlite_where=sa.text("ended_published IS 0"),
        postgresql_where=sa.text("ended_published IS false"),
    )
    op.create_index(op.f("ix_runs_experiment_id"), "runs", ["experiment_id"], unique=False)
    op.create_index(op.f("ix_runs_parent_id"), "runs", ["parent_id"], unique=False)
    op.create_index("ix_runs_status_lease_until", "runs", ["status", "lease_until"], unique=False)
    op.create_index("ix_runs_stop_reason_created_at", "runs", ["stop_reason", "created_at"], unique=False)

    op.create_table(
        "tokens",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("token_id", sa.Integer(), nullable=False),
        sa.Column("piece", sa.Text(), nullable=False),
        sa.Column("token_bytes", sa.LargeBinary(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("is_visible", sa.Boolean(), nullable=False),
        sa.Column("is_withheld", sa.Boolean(), nullable=False),
        sa.Column("raw_logprob", sa.Float(precision=53), nullable=False),
        sa.Column("logprob", sa.Float(precision=53), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("entropy", sa.Float(precision=53), nullable=False),
        sa.Column("elapsed_ms", sa.Float(precision=53), nullable=False),
        sa.Column("ledger", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_tokens_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "position", name=op.f("pk_tokens")),
    )


def downgrade() -> None:
    op.drop_table("tokens")
    op.drop_table("runs")
    op.drop_table("experiments")
