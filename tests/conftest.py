"""Services and databases for every test. A missing service skips a test at home and fails it in CI (CI=true)."""

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.db.session import Database
from tests.fakes.services import (
    Postgres,
    ServiceMissingError,
    Valkey,
    migrate,
    running_postgres,
    running_valkey,
)


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes under test, also where the tests run in the background of a script.

    A shell without job control starts those with SIGINT ignored, and children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def missing(reason: str) -> None:
    """Say that this test cannot run here."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"needed in CI: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """A real server for the whole session. Use `valkey`, which is empty at the start of each test."""
    try:
        with running_valkey(tmp_path_factory.mktemp("valkey")) as server:
            yield server
    except ServiceMissingError as exc:
        missing(str(exc))


@pytest.fixture
def valkey(valkey_server: Valkey) -> Valkey:
    """A real, empty server."""
    with valkey_server.client() as client:
        client.flushall()
    return valkey_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real cluster for the whole session."""
    # Not below pytest's own folder: root alone may enter that, and PostgreSQL runs as another user then.
    with tempfile.TemporaryDirectory(prefix="decodelab-postgres-") as folder:
        Path(folder).chmod(0o755)
        try:
            with running_postgres(Path(folder)) as server:
                yield server
        except ServiceMissingError as exc:
            missing(str(exc))


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy: migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("sqlite") / "template.sqlite3"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres: Postgres) -> str:
    """The name of a migrated database to copy."""
    name = "template_decodelab"
    migrate(postgres.create_database(name))
    return name


@pytest.fixture
def sqlite_url(migrated_sqlite: Path, tmp_path: Path) -> str:
    """A migrated, empty SQLite database of this test alone."""
    path = tmp_path / "decodelab.sqlite3"
    shutil.copy(migrated_sqlite, path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgres_url(postgres: Postgres, migrated_postgres: str) -> Iterator[str]:
    """A migrated, empty PostgreSQL database of this test alone."""
    name = f"test_{uuid.uuid4().hex}"
    yield postgres.create_database(name, template=migrated_postgres)
    postgres.drop_database(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Once for each kind of database."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """Once for each kind of database, migrated and empty."""
    database = Database(database_url)
    yield database
    database.close()
