"""Fixtures: database, Valkey, and real worker processes that end with the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from models.db.session import Database
from tests.fakes.services import Valkey, wait_until
from tests.fakes.stack import Stack
from tests.fakes.worker import START_TIMEOUT_S, Plan, WorkerProcess

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def stack(valkey: Valkey, database: Database) -> Stack:
    """Once for each kind of database."""
    return Stack(valkey, database)


@pytest.fixture
def lite_stack(valkey: Valkey, sqlite_url: str) -> Iterator[Stack]:
    """On SQLite alone: for faults that do not touch the database."""
    database = Database(sqlite_url)
    yield Stack(valkey, database)
    database.close()


@pytest.fixture
def start_worker(tmp_path: Path) -> Iterator[StartWorker]:
    """`start_worker(stack, plan, **settings)`: as many workers as a test likes; all are gone after it."""
    workers: list[WorkerProcess] = []

    def start(stack: Stack, plan: Plan | None = None, *, rows: int = 2, **settings: Any) -> WorkerProcess:
        url = stack.database.url.render_as_string(hide_password=False)
        log = tmp_path / f"worker-{len(workers)}.log"
        worker = WorkerProcess(stack.valkey, url, plan or Plan(), rows=rows, settings=settings, log=log)
        workers.append(worker)
        return worker.start()

    yield start
    for worker in workers:
        worker.kill()


def replace_the_dead(stack: Stack, start: Callable[[], WorkerProcess], *, until: str) -> int:
    """Start a worker, and another for each that dies, until the run `until` has ended; how many died."""
    workers = [start()]

    def has_ended() -> bool:
        if workers[-1].has_left:
            workers.append(start())
        return stack.row(until).stop_reason is not None

    wait_until(has_ended, timeout_s=2 * START_TIMEOUT_S, what=f"the end of run {until}")
    return len(workers) - 1
