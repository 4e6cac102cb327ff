"""How SQLite goes about the history's questions: never through the whole table, which is as large as its texts.

A clock on a busy machine says little; the plan says whether a question stays quick when there are many runs.
"""

from typing import Any

import pytest
from sqlalchemy import Engine, event

from app.history import Bounds, History, RunFilter, Sort, SortKey
from models.db.session import Database
from models.events import RunKind, Status, StopReason
from tests.fakes.rows import new_run

FILTERS = {
    "nothing": RunFilter(),
    "checkpoint": RunFilter(checkpoint="c"),
    "stop": RunFilter(stop_reason=StopReason.EOS),
    "starred": RunFilter(is_starred=True),
    "not starred": RunFilter(is_starred=False),
    "kind": RunFilter(kind=RunKind.SCORE),
    "seed": RunFilter(seed=1),
    "range": RunFilter(min_temperature=5),
    "setting": RunFilter(settings={"top_p": Bounds(0.5, 0.5)}),
    "two": RunFilter(status=Status.FAILED, stop_reason=StopReason.EOS),
    "many": RunFilter(is_starred=True, checkpoint="c", max_tokens=3, settings={"top_k": Bounds(1), "top_p": Bounds(1)}),
    "words": RunFilter(text="tell"),
    "words and more": RunFilter(text="tell", tag="t", stop_reason=StopReason.EOS, min_tokens=1),
}
HAVE_AN_INDEX = [FILTERS[name] for name in ("checkpoint", "stop", "starred")]
SORTS = [Sort(key, is_ascending) for key in SortKey for is_ascending in (False, True)]


@pytest.mark.parametrize("filters", FILTERS.values(), ids=list(FILTERS))
def test_no_list_reads_the_table_to_choose(sqlite_url: str, filters: RunFilter) -> None:
    database = Database(sqlite_url)
    with database.write() as session:
        session.add_all(new_run(num_tokens=n) for n in range(3))
    asked = _statements(database.engine)
    for sort in SORTS:
        page = History(database).page(filters, sort=sort, limit=1)
        History(database).page(filters, sort=sort, before=page.next, limit=1)
    choosing = [(sql, values) for sql, values in asked if sql.startswith("SELECT runs.id \nFROM runs")]
    assert len(choosing) >= len(SORTS)
    for sql, values in choosing:
        steps = [step for step in _plan(database.engine, sql, values) if " runs " in step]
        assert steps
        # Along the order of the page, or along the equal ones in that order, a page is full after some steps.
        is_walk = "ORDER BY +" not in sql and (filters == RunFilter() or filters in HAVE_AN_INDEX)
        for step in steps:
            assert "COVERING INDEX" in step or (is_walk and "INDEX ix_runs_" in step), f"{step}, so each row: {sql}"


def _statements(engine: Engine) -> list[tuple[str, Any]]:
    """Grows with each statement from now on."""
    found: list[tuple[str, Any]] = []

    @event.listens_for(engine, "before_cursor_execute")
    def keep(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        found.append((statement, values))

    return found


def _plan(engine: Engine, sql: str, values: Any) -> list[str]:
    with engine.connect() as connection:
        return [row[3] for row in connection.exec_driver_sql("EXPLAIN QUERY PLAN " + sql, values)]
