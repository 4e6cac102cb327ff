"""The fixtures of the worker side."""

import pytest

from models.db.session import Database
from tests.fakes.rows import new_run
from tests.fakes.worker_side import lite_stack, stack, start_worker
from tests.integration.worker.stored import NewStore
from workers.store import Store

__all__ = ["lite_stack", "stack", "start_worker"]


@pytest.fixture
def new_store(database: Database) -> NewStore:
    def build(owner: str, lease_s: float = 30) -> Store:
        return Store(database, owner, lease_s=lease_s, facts={"weights_digest": "d" * 64})

    return build


@pytest.fixture
def run_id(database: Database) -> str:
    with database.write() as session:
        run = new_run()
        session.add(run)
    return run.id
