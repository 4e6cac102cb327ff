"""The state of the stack, from real Redis and real databases."""

from datetime import UTC, datetime, timedelta

import pytest

from app.overview import NUM_ACTIVE, Overview
from app.serving import Serving
from app.submit import Submitter
from models.db.base import database_now
from models.db.runs import Run
from models.db.session import Database
from models.events import Status, StopReason
from models.sampling import NEUTRAL
from tests.fakes.rows import new_run
from tests.fakes.services import Valkey
from tests.integration.app.by_hand import Worker


@pytest.fixture
def overview(database: Database, serving: Serving) -> Overview:
    return Overview(database, serving)


def add(database: Database, *runs: Run) -> None:
    with database.write() as session:
        session.add_all(runs)


def test_an_empty_stack(overview: Overview) -> None:
    found = overview.take()
    assert (found.workers, found.queues, found.active, found.failures, found.spreads) == ([], [], [], [], [])
    assert found.problems == []
    assert found.taken_at is not None


def test_who_is_there_and_what_waits(
    overview: Overview, submitter: Submitter, worker: Worker, database: Database
) -> None:
    worker.appear()
    made = [submitter.submit(f"prompt {i}", NEUTRAL, checkpoint="tiny") for i in range(3)]
    add(database, new_run(checkpoint="other", status=Status.RUNNING.value, attempt=2, num_tokens=7, prompt="it runs\0"))
    found = overview.take()
    assert [w.worker_id for w in found.workers] == ["w-tiny"]
    assert [(q.checkpoint, q.num_waiting, q.num_running) for q in found.queues] == [("other", 0, 1), ("tiny", 3, 0)]
    assert found.queues[0].oldest_waiting_s is None
    assert 0 <= (found.queues[1].oldest_waiting_s or -1) < 60
    assert [run.id for run in found.active][:3] == made
    last = found.active[-1]
    assert (last.prompt_start, last.status, last.attempt, last.num_tokens) == ("it runs\0", Status.RUNNING, 2, 7)


def test_a_long_list_is_cut_and_the_numbers_are_not(overview: Overview, database: Database) -> None:
    add(database, *(new_run() for _ in range(NUM_ACTIVE + 5)))
    found = overview.take()
    assert len(found.active) == NUM_ACTIVE
    assert found.queues[0].num_waiting == NUM_ACTIVE + 5


def test_failures_are_newest_first_with_what_happened(overview: Overview, database: Database) -> None:
    now = datetime.now(UTC)

    def failed(days: float, message: str) -> Run:
        return new_run(
            status=Status.FAILED.value,
            ended_at=now - timedelta(days=days),
            stop_reason=StopReason.WORKER_LOST.value,
            stop={"reason": "worker_lost", "message": message},
        )

    add(database, failed(1, "older"), failed(0.1, "newer"), failed(30, "long ago"))
    found = overview.take().failures
    assert [(run.reason, run.message) for run in found] == [
        (StopReason.WORKER_LOST, "newer"),
        (StopReason.WORKER_LOST, "older"),
    ]


def test_percentiles_are_of_finished_runs(overview: Overview, database: Database) -> None:
    def finished(number: int) -> Run:
        timing = {"ttft_ms": float(number), "tokens_per_s": float(number), "itl_ms": {"p50": 2.0 * number}}
        return new_run(status=Status.FINISHED.value, ended_at=database_now(), timing=timing)

    cancelled = new_run(status=Status.CANCELLED.value, ended_at=database_now(), timing={"ttft_ms": 1e6})
    add(database, *(finished(n) for n in range(1, 101)), cancelled)
    found = {spread.figure: spread for spread in overview.take().spreads}
    assert set(found) == {"ttft_ms", "itl_ms", "tokens_per_s"}
    assert (found["ttft_ms"].num_runs, found["ttft_ms"].values) == (100, (50.0, 95.0, 99.0))
    assert found["itl_ms"].values == (100.0, 190.0, 198.0)
    assert found["tokens_per_s"].values == (50.0, 5.0, 1.0), "95 of 100 runs reach 5 tokens/s"


def test_what_is_away_is_said_and_the_rest_is_shown(
    overview: Overview, submitter: Submitter, worker: Worker, valkey: Valkey
) -> None:
    worker.appear()
    submitter.submit("x", NEUTRAL)
    valkey.kill()
    found = overview.take()
    assert found.workers == []
    assert len(found.active) == 1
    (problem,) = found.problems
    assert "Redis" in problem
