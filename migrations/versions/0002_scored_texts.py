"""Runs that score a given text, whose tokens may be impossible."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | Sequence[str] | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    with op.batch_alter_table("runs") as runs:
        runs.add_column(sa.Column("given_text", sa.Text(), nullable=True))
    with op.batch_alter_table("tokens") as tokens:
        tokens.alter_column("logprob", existing_type=sa.Float(precision=53), nullable=True)


def downgrade() -> None:
    op.execute("DELETE FROM runs WHERE kind = 'score'")
    op.execute("DELETE FROM tokens WHERE run_id NOT IN (SELECT id FROM runs)")
    with op.batch_alter_table("tokens") as tokens:
        tokens.alter_column("logprob", existing_type=sa.Float(precision=53), nullable=False)
    with op.batch_alter_table("runs") as runs:
        runs.drop_column("given_text")
