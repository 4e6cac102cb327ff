"""The index of words: filled by its migration, and made again where a batch migration takes its triggers away."""

from pathlib import Path

from sqlalchemy import create_engine, text

from app.history import History, RunFilter
from migrations import run_search
from models.db.session import Database
from tests.fakes.rows import new_run


def test_lost_triggers_bring_the_whole_index_back(sqlite_url: str, tmp_path: Path) -> None:
    database = Database(sqlite_url)
    with database.write() as session:
        session.add(new_run(prompt="before"))
        session.flush()
        session.execute(text("DROP TRIGGER run_search_enter"))
        session.add(new_run(prompt="unseen"))
    history = History(database)
    assert [len(history.page(RunFilter(text=word)).rows) for word in ("before", "unseen")] == [1, 0]
    engine = create_engine(sqlite_url)
    with engine.begin() as connection:
        run_search.restore_on_sqlite(connection)
    engine.dispose()
    with database.write() as session:
        session.add(new_run(prompt="after"))
    assert [len(history.page(RunFilter(text=word)).rows) for word in ("before", "unseen", "after")] == [1, 1, 1]
    database.close()
