"""A real Valkey server and a real database; the worker's part is played by hand (tests/integration/app/by_hand.py)."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.history import History
from app.serving import Serving
from app.settings import AppSettings
from app.submit import Submitter
from app.valkey import answers, find_server, free_port, server_command
from models.db.base import Base
from models.db.session import Database
from tests.integration.app.by_hand import Worker


class ValkeyServer:
    """A server that a test may kill and start again on the same port and data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port(17000)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        command = server_command(find_server(), self._folder, self._port)
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 10
        while not answers(self.url):
            assert time.monotonic() < deadline, "the Valkey server of the test did not start"
            time.sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture()
def valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    folder = tmp_path / "valkey"
    folder.mkdir()
    server = ValkeyServer(folder)
    server.start()
    yield server
    server.kill()


@pytest.fixture()
def app_settings(tmp_path: Path, valkey: ValkeyServer) -> AppSettings:
    return AppSettings(data=tmp_path, redis_url=valkey.url, checkpoints="tiny=folder;other=folder")


@pytest.fixture()
def database(app_settings: AppSettings) -> Iterator[Database]:
    database = Database(app_settings.database_url)
    Base.metadata.create_all(database.engine)
    yield database
    database.close()


@pytest.fixture()
def worker(database: Database, valkey: ValkeyServer) -> Iterator[Worker]:
    worker = Worker(database, valkey.url)
    yield worker
    worker.close()


@pytest.fixture()
def serving(valkey: ValkeyServer) -> Iterator[Serving]:
    serving = Serving(valkey.url)
    yield serving
    serving.close()


@pytest.fixture()
def submitter(database: Database, serving: Serving, app_settings: AppSettings) -> Iterator[Submitter]:
    submitter = Submitter(database, app_settings.redis_url, serving, app_settings)
    yield submitter
    submitter.close()


@pytest.fixture()
def history(database: Database) -> History:
    return History(database)
