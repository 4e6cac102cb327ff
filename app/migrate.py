"""Bring the database to the newest revision, and see which one it has."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError

from app.settings import AppSettings
from models.db.session import Database
from models.errors import DatabaseUnavailableError

PROJECT: Final = Path(__file__).resolve().parent.parent  # where alembic.ini lies
UPGRADE: Final = (sys.executable, "-m", "alembic", "upgrade", "head")


def migrate(settings: AppSettings) -> None:
    """Run every migration that is missing. Raises DatabaseUnavailableError with the reason."""
    settings.data.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        UPGRADE,
        cwd=PROJECT,
        env=settings.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise DatabaseUnavailableError(f"The migrations did not run: {' '.join(reason)}")


def saved_and_newest(database: Database) -> tuple[str | None, str | None]:
    """The revision of the database and the newest one there is. Raises DatabaseUnavailableError."""
    try:
        newest = ScriptDirectory.from_config(Config(str(PROJECT / "alembic.ini"))).get_current_head()
    except CommandError as exc:
        raise DatabaseUnavailableError(
            f"The migrations are not at {PROJECT} ({exc}). Install the project again."
        ) from exc
    with database.read() as session:
        saved = MigrationContext.configure(session.connection()).get_current_revision()
    return saved, newest
