"""The saved order of the stages names the constraint, after the bias; the version before knows none, and no beams."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | Sequence[str] | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_ROWS_AT_ONCE: Final = 1000
_NEW: Final = {"constraint", "num_beams", "length_penalty", "early_stopping"}  # settings
_runs: Final = sa.table("runs", sa.column("id", sa.String), sa.column("settings", sa.JSON))


def upgrade() -> None:
    _change(_with_constraint)


def downgrade() -> None:
    _change(_without_constraint)


def _with_constraint(settings: dict[str, Any]) -> dict[str, Any] | None:
    order = settings.get("order")
    if not isinstance(order, list) or "constraint" in order:
        return None
    place = order.index("bias") + 1 if "bias" in order else 0
    return {**settings, "order": [*order[:place], "constraint", *order[place:]]}


def _without_constraint(settings: dict[str, Any]) -> dict[str, Any] | None:
    order = settings.get("order")
    if not isinstance(order, list) or "constraint" not in order:
        return None
    kept = {name: value for name, value in settings.items() if name not in _NEW}
    return {**kept, "order": [stage for stage in order if stage != "constraint"]}


def _change(change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Rewrite the settings of every run for which `change` gives new ones."""
    connection = op.get_bind()
    update = (
        _runs.update().where(_runs.c.id == sa.bindparam("run_id")).values(settings=sa.bindparam("new", type_=sa.JSON))
    )
    last = ""
    while True:
        query = sa.select(_runs).where(_runs.c.id > last).order_by(_runs.c.id).limit(_ROWS_AT_ONCE)
        rows = connection.execute(query).all()
        if not rows:
            return
        last = rows[-1].id
        changed = [(row.id, change(row.settings)) for row in rows if isinstance(row.settings, dict)]
        values = [{"run_id": run_id, "new": new} for run_id, new in changed if new is not None]
        if values:
            connection.execute(update, values)
