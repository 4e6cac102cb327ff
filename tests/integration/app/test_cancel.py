"""Cancelling a run that waits, runs, or was never there."""

import pytest

from app.history import History
from app.submit import Submitter
from models.errors import (
    NotFoundError,
)
from models.events import Status, StopReason
from models.names import CANCEL_CHANNEL
from models.sampling import NEUTRAL
from tests.fakes.services import Valkey
from tests.integration.app.by_hand import Worker


def test_cancel_of_a_waiting_run_ends_it_at_once(submitter: Submitter, worker: Worker, history: History) -> None:
    worker.appear()
    run_id = submitter.submit("x", NEUTRAL)
    submitter.cancel(run_id)
    submitter.cancel(run_id)
    run = history.run(run_id)
    assert run.status is Status.CANCELLED
    assert run.stop is not None
    assert run.stop.reason is StopReason.CANCELLED
    assert [event.type for event in run.events] == ["ended"]


def test_cancel_of_a_running_run_asks_its_worker(submitter: Submitter, worker: Worker, history: History) -> None:
    worker.appear()
    run_id = submitter.submit("x", NEUTRAL)
    worker.save(run_id, [])  # claimed
    hints = worker.redis.pubsub(ignore_subscribe_messages=True)
    hints.subscribe(CANCEL_CHANNEL)
    hints.get_message(timeout=1)
    submitter.cancel(run_id)
    message = hints.get_message(timeout=2)
    assert message is not None
    assert message["data"] == run_id.encode()
    run = history.run(run_id)
    assert (run.status, run.cancel_requested) == (Status.RUNNING, True)
    hints.close()


def test_cancel_without_redis_is_still_saved(
    submitter: Submitter, worker: Worker, valkey: Valkey, history: History
) -> None:
    worker.appear()
    run_id = submitter.submit("x", NEUTRAL)
    worker.save(run_id, [])
    valkey.kill()
    submitter.cancel(run_id)
    assert history.run(run_id).cancel_requested


def test_cancel_of_an_unknown_run(submitter: Submitter) -> None:
    with pytest.raises(NotFoundError):
        submitter.cancel("no-such-run")
