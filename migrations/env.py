"""Runs the migrations: `python -m alembic upgrade head`, on the configured database or on `-x url=...`.

One transaction holds the whole upgrade and a lock: a second upgrade waits, and one that is killed has changed nothing.
On SQLite foreign keys are off while it runs, because a batch migration drops and renames tables, and with foreign keys
on that deletes the rows of every table that refers to them. What it leaves is checked before it is committed.
"""

from logging.config import fileConfig
from pathlib import Path
from typing import Any, Final, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import Connection, text

import models.db.experiments
import models.db.runs  # noqa: F401 -- imported, like experiments, so that the metadata knows every table
from app.settings import AppSettings
from migrations import run_search
from models.db.base import Base, LosslessText, UtcDateTime
from models.db.session import Database

ADVISORY_LOCK: Final = 0xDEC0DE1AB
LOCK_TIMEOUT_S: Final = 600


def _url() -> str:
    return context.get_x_argument(as_dictionary=True).get("url") or AppSettings.load().database_url


def _render_item(kind: str, value: Any, _context: AutogenContext) -> str | Literal[False]:
    """Column types in a migration are the database's own: a migration must not change when a Python class does."""
    if kind == "type" and isinstance(value, LosslessText):
        return "sa.Text()"
    if kind == "type" and isinstance(value, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return False


def _is_ours(name: str | None, kind: str, _parents: Any) -> bool:
    """Whether a table is one of the data model: the index of words is kept by the database itself."""
    return kind != "table" or not (name or "").startswith(run_search.PREFIX)


def _configure(connection: Connection | None = None, url: str | None = None) -> None:
    context.configure(
        connection=connection,
        url=url,
        target_metadata=Base.metadata,
        render_as_batch=True,
        render_item=_render_item,
        include_name=_is_ours,
        compare_type=True,
        transactional_ddl=True,
        literal_binds=connection is None,
    )


def _lock_sqlite(connection: Connection) -> None:
    driver = connection.connection.driver_connection
    if driver is None:
        raise RuntimeError("no connection to migrate")
    driver.execute("PRAGMA foreign_keys=OFF")  # has no effect inside a transaction, so before it begins
    driver.execute(f"PRAGMA busy_timeout={LOCK_TIMEOUT_S * 1000}")


def _check_sqlite(connection: Connection) -> None:
    broken = connection.execute(text("PRAGMA foreign_key_check")).fetchall()
    if broken:
        raise RuntimeError(f"the migration would leave {len(broken)} rows that refer to nothing; nothing was changed")


def _migrate() -> None:
    database = Database(_url())
    if database.is_sqlite and database.url.database:
        Path(database.url.database).parent.mkdir(parents=True, exist_ok=True)
    with database.engine.connect().execution_options(decodelab_writes=True) as connection:
        if database.is_sqlite:
            _lock_sqlite(connection)
        with connection.begin():
            if not database.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
            _configure(connection)
            context.run_migrations()
            if database.is_sqlite:
                run_search.restore_on_sqlite(connection)
                _check_sqlite(connection)
        connection.invalidate()  # its PRAGMAs are not those of the application
    database.close()


if context.config.config_file_name is not None:
    fileConfig(context.config.config_file_name, disable_existing_loggers=False)
if context.is_offline_mode():
    _configure(url=_url())
    with context.begin_transaction():
        context.run_migrations()
else:
    _migrate()
