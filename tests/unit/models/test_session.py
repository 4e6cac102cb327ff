"""The door to the database, on both kinds: its clock, its locks, its errors."""

import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, text, update

from models.db import session as session_module
from models.db.base import database_now
from models.db.runs import Run
from models.db.session import Database
from models.errors import DatabaseUnavailableError
from tests.fakes.rows import new_run


def test_the_database_clock_is_now_in_utc(database: Database) -> None:
    with database.read() as session:
        now = session.scalar(select(database_now()))
    assert now is not None
    assert now.tzinfo is not None
    assert abs(now - datetime.now(UTC)) < timedelta(seconds=2)


@pytest.mark.parametrize("offset_s", [-3600.0, -0.25, 0.0, 0.25, 30.0, 3600.0])
def test_an_offset_of_the_database_clock_is_exact(database: Database, offset_s: float) -> None:
    with database.read() as session:
        before = datetime.now(UTC)
        ahead = session.scalar(select(database_now(plus_s=offset_s)))
        after = datetime.now(UTC)
    assert ahead is not None
    shift = timedelta(seconds=offset_s)
    margin = timedelta(milliseconds=5)  # SQLite's clock has milliseconds
    assert before + shift - margin <= ahead <= after + shift + margin


@pytest.mark.parametrize("by", ["bound", "clock"])
def test_a_stored_time_compares_with_the_clock_whoever_wrote_it(database: Database, by: str) -> None:
    """Times bound from Python and times set by the clock have one form, so that `<` means earlier."""
    written = {
        "past": (datetime.now(UTC) - timedelta(milliseconds=300), database_now(plus_s=-0.3)),
        "future": (datetime.now(UTC) + timedelta(seconds=2), database_now(plus_s=2)),
    }
    for name, (bound, clock) in written.items():
        with database.write() as session:
            session.add(new_run(id=name))
        with database.write() as session:
            value = bound if by == "bound" else clock
            session.execute(update(Run).where(Run.id == name).values(lease_until=value))
    with database.read() as session:
        expired = session.scalars(select(Run.id).where(Run.lease_until < database_now())).all()
        valid = session.scalars(select(Run.id).where(Run.lease_until > database_now())).all()
    assert (list(expired), list(valid)) == (["past"], ["future"])


def test_a_whole_second_compares_as_well(database: Database) -> None:
    """Without its fraction a time would be a shorter text, which SQLite sorts before every longer one."""
    whole = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    with database.write() as session:
        session.add(new_run(id="whole", lease_until=whole))
    with database.read() as session:
        valid = session.scalar(select(Run.id).where(Run.lease_until > database_now()))
        expired = session.scalar(select(Run.id).where(Run.lease_until < database_now(plus_s=4)))
    assert (valid, expired) == ("whole", "whole")


def test_a_write_takes_the_lock_with_its_first_statement(sqlite_url: str) -> None:
    """Two writers that read first and write later: with a deferred transaction the second one fails at its write."""
    database = Database(sqlite_url)
    has_begun = threading.Event()
    waited_s: list[float] = []

    def second() -> None:
        has_begun.wait()
        began = time.monotonic()
        with database.write() as session:
            session.execute(text("SELECT 1"))
            waited_s.append(time.monotonic() - began)
            session.add(new_run(id="second"))

    thread = threading.Thread(target=second)
    thread.start()
    with database.write() as session:
        session.execute(text("SELECT 1"))
        has_begun.set()
        time.sleep(0.5)
        session.add(new_run(id="first"))
    thread.join()
    with database.read() as session:
        assert set(session.scalars(select(Run.id))) == {"first", "second"}
    assert waited_s[0] >= 0.3, "the second writer began before the first had committed"
    database.close()


def test_a_reader_does_not_wait_for_a_writer(database: Database) -> None:
    with database.write() as session:
        session.add(new_run(id="unseen"))
        session.flush()
        began = time.monotonic()
        with database.read() as reader:
            assert reader.scalar(select(Run.id)) is None
        assert time.monotonic() - began < 1


def test_many_writers_all_get_their_turn(database: Database) -> None:
    def write(number: int) -> None:
        for index in range(10):
            with database.write() as session:
                session.add(new_run(id=f"{number}-{index}"))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as session:
        assert len(session.scalars(select(Run.id)).all()) == 50


def test_a_database_that_is_not_there_is_told_in_a_sentence() -> None:
    database = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnavailableError, match="The database does not answer"):
        database.check()


def test_a_database_without_tables_is_told_with_the_command_that_makes_them(database: Database) -> None:
    with (
        pytest.raises(DatabaseUnavailableError, match=r"lacks what is needed .*no_such_table.*`decodelab migrate`"),
        database.read() as session,
    ):
        session.execute(text("SELECT 1 FROM no_such_table"))
    with (
        pytest.raises(DatabaseUnavailableError, match=r"lacks what is needed .*no_such_column.*`decodelab migrate`"),
        database.write() as session,
    ):
        session.execute(text("UPDATE runs SET no_such_column = 1"))


def test_a_pool_that_is_used_up_is_told_in_a_sentence(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "POOL_TIMEOUT_S", 0.1)
    database = Database(sqlite_url, pool_size=1)
    with ExitStack() as stack:
        for _ in range(11):  # the pool and its overflow
            stack.enter_context(database.read()).execute(text("SELECT 1"))
        with pytest.raises(DatabaseUnavailableError, match="No connection to the database came free"):
            database.check()
    database.check()
    database.close()


def test_a_transaction_that_stands_still_is_ended_by_postgresql(postgres_url: str) -> None:
    """Whoever is stopped inside a transaction must not keep its locks for ever."""
    database = Database(postgres_url)
    with database.read() as session:
        assert session.scalar(text("SHOW idle_in_transaction_session_timeout")) == "15s"
    database.close()
