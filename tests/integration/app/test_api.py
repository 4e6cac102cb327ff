"""The HTTP routes beside the page, over real services."""

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.api.routes import build_router
from app.history import History
from app.run_json import run_json
from app.serving import Serving
from app.submit import Submitter
from models.db.session import Database
from models.sampling import NEUTRAL
from tests.fakes.services import Valkey
from tests.integration.app.by_hand import Worker
from tests.unit.app.runs import events, token


@pytest.fixture
def client(database: Database, serving: Serving) -> Iterator[TestClient]:
    app = FastAPI()
    app.include_router(build_router(database, serving))
    with TestClient(app) as client:
        yield client


def test_health_is_of_the_process_alone(client: TestClient, valkey: Valkey) -> None:
    valkey.kill()
    assert client.get("/health").json() == {"status": "ok"}


def test_ready_says_what_is_away(client: TestClient, worker: Worker, valkey: Valkey) -> None:
    worker.appear()
    answer = client.get("/ready")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "problems": {}, "num_workers": 1})
    valkey.kill()
    answer = client.get("/ready")
    assert answer.status_code == 503
    assert list(answer.json()["problems"]) == ["redis"]


def test_ready_asks_redis_for_what_it_says_of_it(client: TestClient, valkey: Valkey) -> None:
    """A server that answers a ping and refuses the rest, as one does that loads its data or lacks a permission."""
    with valkey.client() as admin:
        admin.execute_command("ACL", "SETUSER", "default", "-zrange")
    answer = client.get("/ready")
    assert (answer.status_code, list(answer.json()["problems"])) == (503, ["redis"])


def test_one_run_is_the_commands_json(
    client: TestClient, submitter: Submitter, worker: Worker, history: History
) -> None:
    worker.appear()
    run_id = submitter.submit("two", NEUTRAL)
    worker.save(run_id, events(run_id, [token(0, 1, text="\0<b>")]))
    answer = client.get(f"/api/runs/{run_id}")
    assert answer.status_code == 200
    assert answer.json() == run_json(history.run(run_id))


@pytest.mark.parametrize(
    "run_id", ["no-such-run", "%00", "0199b0c8-0000-7000-8000-000000000000", "%F0%9F%98%80", "1", "a" * 5000]
)
def test_what_is_not_there_is_404(client: TestClient, run_id: str) -> None:
    answer = client.get(f"/api/runs/{run_id}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


def test_a_database_that_is_away_is_503(valkey: Valkey) -> None:
    away = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    app = FastAPI()
    app.include_router(build_router(away, Serving(valkey.url)))
    with TestClient(app) as client:
        assert client.get("/api/runs/0199b0c8-0000-7000-8000-000000000000").status_code == 503
        assert list(client.get("/ready").json()["problems"]) == ["database"]
    away.close()
