"""Branches: runs whose output begins with given tokens."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | Sequence[str] | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    # A table that is made anew, as Alembic's batches do it on SQLite, would lose the triggers of the index of words.
    op.add_column("runs", sa.Column("opening_ids", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    # Without it a branch that waits would be generated as if it were none.
    op.execute("DELETE FROM runs WHERE opening_ids IS NOT NULL AND status IN ('queued', 'running')")
    op.execute("DELETE FROM tokens WHERE run_id NOT IN (SELECT id FROM runs)")
    op.drop_column("runs", "opening_ids")
