"""One door to the database: `Database(url).read()` and `.write()`.

SQLite runs in WAL mode with a busy timeout, and a write transaction takes the write lock at its beginning, so that
writers wait for each other instead of failing half-way. PostgreSQL needs no such help.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from models.errors import DatabaseUnavailableError

BUSY_TIMEOUT_S: Final = 15
POOL_TIMEOUT_S: Final = 10
IDLE_TIMEOUT_S: Final = 15

_SQLITE_LACKS: Final = ("no such table", "no such column", "has no column named")
_POSTGRESQL_LACKS: Final = ("42P01", "42703")  # undefined table, undefined column


class Database:
    """A pool of connections to one database, shared by the threads of a process."""

    def __init__(self, url: str, *, pool_size: int = 10) -> None:
        """`url` is an SQLAlchemy URL: `sqlite:////path/to/file` or `postgresql+psycopg://user@host/name`."""
        self.url: URL = make_url(url)
        options: dict[str, Any] = {"pool_pre_ping": True, "pool_size": pool_size, "pool_timeout": POOL_TIMEOUT_S}
        if self.is_sqlite:
            options["connect_args"] = {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}
        else:
            # A process that is stopped inside a transaction must not keep its row locks from its successor.
            idle = f"-c idle_in_transaction_session_timeout={IDLE_TIMEOUT_S * 1000}"
            options["connect_args"] = {"connect_timeout": 5, "options": idle}
        self.engine: Engine = create_engine(self.url, **options)
        if self.is_sqlite:
            event.listen(self.engine, "connect", _configure_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        self._writer = self.engine.execution_options(decodelab_writes=True)

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that is rolled back at the end.

        Raises DatabaseUnavailableError when there is no answer, or a database without the tables that are asked for.
        """
        with _translated(), Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session that is committed at the end, rolled back on an exception. Keep it short.

        Raises DatabaseUnavailableError when the database does not answer, stays locked or lacks its tables.
        """
        with _translated(), Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    def check(self) -> None:
        """Raise DatabaseUnavailableError unless a trivial query is answered."""
        with self.read() as session:
            session.execute(text("SELECT 1"))

    def close(self) -> None:
        self.engine.dispose()


def _configure_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are begun by `_begin_sqlite`, not by the driver
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
        f"busy_timeout={BUSY_TIMEOUT_S * 1000}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Any) -> None:
    writes = connection.get_execution_options().get("decodelab_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except PoolTimeoutError as exc:
        raise DatabaseUnavailableError(
            f"No connection to the database came free within {POOL_TIMEOUT_S} s. Try again when less is going on."
        ) from exc
    except DBAPIError as exc:
        if _lacks_tables(exc):
            raise DatabaseUnavailableError(
                f"The database lacks what is needed ({_reason(exc)}). Run `python -m alembic upgrade head`, or "
                "`decodelab migrate`, then try again."
            ) from exc
        if isinstance(exc, OperationalError | InterfaceError) or exc.connection_invalidated:
            raise DatabaseUnavailableError(
                f"The database does not answer ({_reason(exc)}). Check that it runs, then try again."
            ) from exc
        raise


def _lacks_tables(exc: DBAPIError) -> bool:
    if getattr(exc.orig, "sqlstate", None) in _POSTGRESQL_LACKS:
        return True
    return isinstance(exc, OperationalError) and any(words in str(exc.orig) for words in _SQLITE_LACKS)


def _reason(exc: DBAPIError) -> str:
    return str(exc.orig).strip().splitlines()[0] if exc.orig else type(exc).__name__
