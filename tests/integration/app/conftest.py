"""A real Valkey server that a test may kill, and real databases; a worker's part is played by hand (by_hand.py)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.history import History
from app.serving import Serving
from app.settings import AppSettings
from app.submit import Submitter
from models.db.session import Database
from tests.conftest import missing
from tests.fakes.services import ServiceMissingError, Valkey, running_valkey
from tests.integration.app.by_hand import Worker


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    """A server of this test alone."""
    folder = tmp_path / "valkey"
    folder.mkdir()
    try:
        with running_valkey(folder) as server:
            yield server
    except ServiceMissingError as exc:
        missing(str(exc))


@pytest.fixture
def app_settings(tmp_path: Path, valkey: Valkey, database_url: str) -> AppSettings:
    return AppSettings(
        data=tmp_path, redis_url=valkey.url, database_url=database_url, checkpoints="tiny=folder;other=folder"
    )


@pytest.fixture
def worker(database: Database, valkey: Valkey) -> Iterator[Worker]:
    worker = Worker(database, valkey.url)
    yield worker
    worker.close()


@pytest.fixture
def serving(valkey: Valkey) -> Iterator[Serving]:
    serving = Serving(valkey.url)
    yield serving
    serving.close()


@pytest.fixture
def submitter(database: Database, serving: Serving, app_settings: AppSettings) -> Iterator[Submitter]:
    submitter = Submitter(database, app_settings.redis_url, serving, app_settings)
    yield submitter
    submitter.close()


@pytest.fixture
def history(database: Database) -> History:
    return History(database)
