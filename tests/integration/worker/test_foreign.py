"""What others put where a worker reads: messages and hints that are none of ours cost nothing but a line in the log."""

import pytest

from models.names import CANCEL_CHANNEL, queue_for
from tests.fakes.rows import CHECKPOINT
from tests.fakes.services import Valkey, wait_until
from tests.fakes.stack import Stack
from tests.fakes.worker_side import StartWorker
from workers.broker import connect
from workers.presence import CancelListener


@pytest.mark.parametrize("foreign", [b"{}", b'{"body": "e30=", "headers": {}, "properties": {}}'])
def test_a_foreign_message_holds_nobody_up(lite_stack: Stack, start_worker: StartWorker, foreign: bytes) -> None:
    worker = start_worker(lite_stack)
    with lite_stack.valkey.client() as client:
        client.lpush(queue_for(CHECKPOINT), foreign)
    for _ in range(2):
        assert lite_stack.wait_ended(lite_stack.submit()).stop_reason is not None
    assert not worker.has_left


def test_a_worker_whose_consumer_ended_by_itself_asks_to_be_replaced(
    lite_stack: Stack, start_worker: StartWorker
) -> None:
    """The queue's library does not survive what is no JSON; the message is gone then, and the next worker works."""
    worker = start_worker(lite_stack)
    with lite_stack.valkey.client() as client:
        client.lpush(queue_for(CHECKPOINT), b"no json")
    assert worker.wait() == 70
    start_worker(lite_stack)
    assert lite_stack.wait_ended(lite_stack.submit()).stop_reason is not None


@pytest.mark.parametrize("hint", [b"\xff", b"", b"no such run"])
def test_a_foreign_hint_holds_nobody_up(lite_stack: Stack, start_worker: StartWorker, hint: bytes) -> None:
    worker = start_worker(lite_stack)
    with lite_stack.valkey.client() as client:
        client.publish(CANCEL_CHANNEL, hint)
    assert lite_stack.wait_ended(lite_stack.submit()).stop_reason is not None
    assert not worker.has_left


def test_a_fault_of_one_run_costs_no_other_its_hint(valkey: Valkey) -> None:
    seen: list[str] = []
    failures: list[str] = []

    def follow(run_id: str) -> None:
        seen.append(run_id)
        if run_id == "damaged":
            raise KeyError(run_id)

    listener = CancelListener(connect(valkey.url), follow, on_failure=failures.append)
    listener.start()
    with valkey.client() as client:
        wait_until(lambda: client.publish(CANCEL_CHANNEL, "damaged"))
        for hint in (b"\xff", b"next"):
            client.publish(CANCEL_CHANNEL, hint)
    wait_until(lambda: "next" in seen)
    listener.stop()
    assert not failures
