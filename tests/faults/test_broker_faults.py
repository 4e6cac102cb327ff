"""Redis goes away, forgets, fills up or loses a queue: runs go on, and nobody restarts anything by hand."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.db.session import Database
from models.events import Event
from models.names import queue_for
from tests.fakes.rows import CHECKPOINT
from tests.fakes.services import Valkey, running_valkey, wait_until
from tests.fakes.stack import GREEDY, Stack
from tests.fakes.worker import Plan
from tests.fakes.worker_side import StartWorker

EIGHTY = GREEDY.with_changes(max_tokens=80)
SLOW = Plan(step_s=0.02)


@pytest.fixture
def own_stack(tmp_path: Path, sqlite_url: str) -> Iterator[Stack]:
    """With a Valkey that this test alone may kill."""
    folder = tmp_path / "valkey"
    folder.mkdir()
    database = Database(sqlite_url)
    with running_valkey(folder) as server:
        yield Stack(server, database)
    database.close()


def restart(valkey: Valkey) -> None:
    valkey.kill()
    valkey.start()


@pytest.mark.parametrize("outage_tokens", [0, 40])
def test_redis_dies_in_mid_run_and_comes_back(own_stack: Stack, start_worker: StartWorker, outage_tokens: int) -> None:
    start_worker(own_stack, SLOW, rows=2)
    running = [own_stack.submit(settings=EIGHTY) for _ in range(2)]
    waiting = [own_stack.submit(settings=EIGHTY) for _ in range(2)]
    own_stack.wait_tokens(running[1], 20)
    own_stack.valkey.kill()
    saved = own_stack.row(running[0]).num_tokens
    wait_until(
        lambda: own_stack.row(running[0]).num_tokens >= min(80, saved + outage_tokens), what="decoding without Redis"
    )
    own_stack.valkey.start()
    for run_id in (*running, *waiting):
        assert own_stack.wait_ended(run_id).stop_reason == "max_tokens"
        events = own_stack.check(run_id, in_stream=False)
        assert Event.decode(own_stack.stream(run_id)[-1]) == events[-1]
        assert {event.attempt for event in events} == {1}
    after = own_stack.submit(settings=EIGHTY)
    assert own_stack.wait_ended(after).stop_reason == "max_tokens"
    own_stack.check(after)


def test_a_worker_leaves_when_told_while_redis_is_away(own_stack: Stack, start_worker: StartWorker) -> None:
    worker = start_worker(own_stack, SLOW)
    run_id = own_stack.submit(settings=EIGHTY)
    own_stack.wait_tokens(run_id, 5)
    own_stack.valkey.kill()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert own_stack.row(run_id).status in ("queued", "finished")
    own_stack.valkey.start()
    start_worker(own_stack)
    own_stack.wait_ended(run_id)
    own_stack.check(run_id, in_stream=False)


def test_redis_forgets_everything_in_mid_run(lite_stack: Stack, start_worker: StartWorker) -> None:
    start_worker(lite_stack, SLOW, rows=2)
    running = [lite_stack.submit(settings=EIGHTY) for _ in range(2)]
    waiting = [lite_stack.submit(settings=EIGHTY) for _ in range(2)]
    lite_stack.wait_tokens(running[1], 30)
    with lite_stack.valkey.client() as client:
        client.flushall()
    for run_id in (*running, *waiting):
        assert lite_stack.wait_ended(run_id).stop_reason == "max_tokens"
        lite_stack.check(run_id, in_stream=False)
    after = lite_stack.submit(settings=EIGHTY)
    lite_stack.wait_ended(after)
    lite_stack.check(after)


def test_a_lost_message_is_sent_again_and_a_waiting_one_is_not(lite_stack: Stack, start_worker: StartWorker) -> None:
    start_worker(lite_stack, SLOW, rows=1)
    busy = lite_stack.submit(settings=GREEDY.with_changes(max_tokens=250))
    lite_stack.wait_tokens(busy, 5)
    lost = [lite_stack.submit(settings=EIGHTY) for _ in range(3)]
    with lite_stack.valkey.client() as client:
        client.delete(queue_for(CHECKPOINT))
    wait_until(lambda: lite_stack.num_waiting() == 3, what="the lost messages on the queue")
    enqueued_at = [lite_stack.row(run_id).enqueued_at for run_id in lost]
    assert lite_stack.wait_ended(busy).stop_reason == "max_tokens"
    assert enqueued_at[1:] == [lite_stack.row(run_id).enqueued_at for run_id in lost[1:]], "sent again once only"
    for run_id in lost:
        assert lite_stack.wait_ended(run_id).stop_reason == "max_tokens"
        lite_stack.check(run_id)


def test_a_row_that_never_got_a_message_is_run(lite_stack: Stack, start_worker: StartWorker) -> None:
    start_worker(lite_stack)
    run_id = lite_stack.save(settings=EIGHTY, enqueued_at=None)
    assert lite_stack.wait_ended(run_id).stop_reason == "max_tokens"


def test_a_full_redis_costs_the_stream_alone(lite_stack: Stack, start_worker: StartWorker) -> None:
    start_worker(lite_stack, SLOW)
    run_id = lite_stack.submit(settings=EIGHTY)
    lite_stack.wait_tokens(run_id, 10)
    with lite_stack.valkey.client() as client:
        client.config_set("maxmemory", 1)
        try:
            wait_until(lambda: lite_stack.row(run_id).status == "finished", what="the end, in the table")
        finally:
            client.config_set("maxmemory", 0)
    run = lite_stack.wait_ended(run_id)
    assert (run.stop_reason, run.attempt) == ("max_tokens", 1)
    lite_stack.check(run_id, in_stream=False)
    after = lite_stack.submit(settings=EIGHTY)
    assert lite_stack.wait_ended(after).stop_reason == "max_tokens"


def test_connections_killed_again_and_again_slow_nothing_down(lite_stack: Stack, start_worker: StartWorker) -> None:
    start_worker(lite_stack, SLOW)
    runs = [lite_stack.submit(settings=EIGHTY) for _ in range(2)]
    for number in range(10, 70, 20):
        lite_stack.wait_tokens(runs[0], number)
        with lite_stack.valkey.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    for run_id in runs:
        run = lite_stack.wait_ended(run_id)
        assert (run.stop_reason, run.attempt) == ("max_tokens", 1)
        lite_stack.check(run_id)
        assert run.timing is not None
        assert run.timing["decode_ms"] < 3 * 100 * 20
    after = lite_stack.submit(settings=EIGHTY)
    assert lite_stack.wait_ended(after).stop_reason == "max_tokens"
