"""Workers that die, hang, sleep or are told to leave: every run still reaches its one ending, exactly told."""

import random
import signal
import sqlite3
import time

import pytest

from models.events import Event, Resumed, TokenPicked
from tests.fakes.services import wait_until
from tests.fakes.stack import GREEDY, Stack, token_ids
from tests.fakes.worker import TEXT, Plan, WorkerProcess
from tests.fakes.worker_side import StartWorker, replace_the_dead

HUNDRED = GREEDY.with_changes(max_tokens=100)
SAMPLED = HUNDRED.with_changes(temperature=1.5, seed=7)
SLOW = Plan(step_s=0.01)
SLOWER = Plan(step_s=0.05)  # its runs are surely not over when a busy machine comes round to what is done to them


def stop_outside_a_write(worker: WorkerProcess, stack: Stack) -> None:
    """SIGSTOP at a moment when the worker does not hold SQLite's one write lock, which nobody could take from it."""
    for _ in range(100):
        worker.signal(signal.SIGSTOP)
        with sqlite3.connect(str(stack.database.url.database), timeout=0.3, isolation_level=None) as probe:
            try:
                probe.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                worker.signal(signal.SIGCONT)
                time.sleep(0.05)  # stopped again at once, it would never come to the end of its write
            else:
                probe.execute("ROLLBACK")
                return
    raise AssertionError("the worker was inside a write each time that it was stopped")


def attempts(events: list[Event]) -> list[int]:
    return sorted({event.attempt for event in events})


def test_a_killed_worker_costs_no_token_and_repeats_none(stack: Stack, start_worker: StartWorker) -> None:
    first = start_worker(stack, SLOWER)
    undisturbed = stack.submit(settings=SAMPLED.with_changes(max_tokens=100))
    stack.wait_ended(undisturbed)
    run_id = stack.submit(settings=SAMPLED)
    stack.wait_tokens(run_id, 40)
    first.kill()
    shown = stack.stream(run_id)
    start_worker(stack, SLOW)
    run = stack.wait_ended(run_id)
    events = stack.check(run_id)
    assert (run.stop_reason, run.attempt) == ("max_tokens", 2)
    assert stack.stream(run_id)[: len(shown)] == shown, "what was shown stays as it was"
    assert token_ids(events) == token_ids(stack.check(undisturbed))
    (resumed,) = [event.payload for event in events if isinstance(event.payload, Resumed)]
    assert resumed.from_position == len(shown) - 2
    assert [event.type for event in events].count("started") == 1
    assert [event.type for event in events].count("prefilled") == 1


def test_workers_killed_at_random_times_lose_nothing(lite_stack: Stack, start_worker: StartWorker) -> None:
    """Eight runs, killed into again and again; a run is killed at most twice, so that each one can be completed."""
    chance = random.Random(20)
    runs = [lite_stack.submit(settings=HUNDRED) for _ in range(8)]
    for _ in range(2):
        worker = start_worker(lite_stack, SLOW, rows=4)
        time.sleep(chance.uniform(0.0, 0.9))
        worker.kill()
    start_worker(lite_stack, SLOW, rows=4)
    for run_id in runs:
        assert lite_stack.wait_ended(run_id).stop_reason == "max_tokens"
        assert len(token_ids(lite_stack.check(run_id))) == 100


def test_a_run_that_kills_its_worker_is_tried_three_times_and_ends(
    lite_stack: Stack, start_worker: StartWorker
) -> None:
    plan = Plan(step_s=0.005, faults={"K": {5: "kill"}})
    poison = lite_stack.submit("K", HUNDRED)
    others = [lite_stack.submit("Q", HUNDRED) for _ in range(6)]
    deaths = replace_the_dead(lite_stack, lambda: start_worker(lite_stack, plan), until=poison)
    run = lite_stack.wait_ended(poison)
    assert (run.stop_reason, run.status, run.attempt, deaths) == ("worker_lost", "failed", 3, 3)
    assert (run.num_tokens, run.text) == (5, TEXT[: len(run.text)])
    # The second attempt takes up five tokens and dies at once: whether its milestone left before that is chance.
    assert attempts(lite_stack.check(poison)) in ([1, 2, 3], [1, 3])
    for run_id in others:
        assert lite_stack.wait_ended(run_id).stop_reason == "max_tokens"
        lite_stack.check(run_id)


@pytest.mark.parametrize("step", [0, 5])
def test_the_neighbours_of_a_run_that_kills_its_worker_all_end_well(
    lite_stack: Stack, start_worker: StartWorker, step: int
) -> None:
    """All four die together each time; `step` 0: the worker is dead before the neighbours have a single token."""
    plan = Plan(step_s=0.002, faults={"K": {step: "kill"}})
    poison = lite_stack.submit("K", HUNDRED)
    neighbours = [lite_stack.submit("Q", GREEDY.with_changes(max_tokens=600)) for _ in range(3)]
    replace_the_dead(lite_stack, lambda: start_worker(lite_stack, plan, rows=4), until=poison)
    run = lite_stack.wait_ended(poison)
    assert (run.stop_reason, run.attempt) == ("worker_lost", 3)
    assert "after 3 attempts" in str(run.stop)
    for run_id in neighbours:
        ended = lite_stack.wait_ended(run_id)
        assert (ended.stop_reason, ended.num_tokens) == ("max_tokens", 600)
        lite_stack.check(run_id)


def test_a_worker_that_is_told_to_leave_finishes_short_runs_and_hands_over_long_ones(
    stack: Stack, start_worker: StartWorker
) -> None:
    worker = start_worker(stack, SLOW, rows=2, drain_s=3)
    long = stack.submit(settings=GREEDY.with_changes(max_tokens=650))
    stack.wait_tokens(long, 20)
    short = stack.submit(settings=GREEDY.with_changes(max_tokens=60))
    stack.wait_tokens(short, 5)
    worker.signal(signal.SIGTERM)
    late = stack.submit(settings=GREEDY.with_changes(max_tokens=5))
    assert worker.wait() == 0
    assert worker.presence is None
    assert stack.row(short).stop_reason == "max_tokens"
    assert (stack.row(short).attempt, stack.row(long).status, stack.row(late).status) == (1, "queued", "queued")
    start_worker(stack)
    for run_id in (long, short, late):
        assert stack.wait_ended(run_id).stop_reason == "max_tokens"
        stack.check(run_id)
    assert attempts(stack.check(long)) == [1, 2]


def test_a_worker_without_work_leaves_at_once(lite_stack: Stack, start_worker: StartWorker) -> None:
    worker = start_worker(lite_stack, drain_s=600)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, "it does not drain for ten minutes"


def test_a_worker_that_wakes_up_after_its_lease_writes_nothing(lite_stack: Stack, start_worker: StartWorker) -> None:
    sleeper = start_worker(lite_stack, SLOWER)
    run_id = lite_stack.submit(settings=HUNDRED)
    lite_stack.wait_tokens(run_id, 30)
    stop_outside_a_write(sleeper, lite_stack)
    start_worker(lite_stack, SLOW)
    run = lite_stack.wait_ended(run_id)
    assert run.attempt == 2
    told, saved = lite_stack.stream(run_id), lite_stack.table(run_id)
    sleeper.signal(signal.SIGCONT)
    time.sleep(1.5)
    assert lite_stack.stream(run_id) == told
    assert lite_stack.table(run_id) == saved
    lite_stack.check(run_id)
    assert sleeper.presence is not None, "it goes on with other runs"


def test_a_worker_that_wakes_up_beside_its_successor_is_kept_out(lite_stack: Stack, start_worker: StartWorker) -> None:
    sleeper = start_worker(lite_stack, SLOWER)
    run_id = lite_stack.submit(settings=GREEDY.with_changes(max_tokens=200))
    lite_stack.wait_tokens(run_id, 30)
    stop_outside_a_write(sleeper, lite_stack)
    start_worker(lite_stack, SLOW)
    wait_until(lambda: lite_stack.row(run_id).attempt == 2, what="the second attempt")
    sleeper.signal(signal.SIGCONT)
    assert lite_stack.wait_ended(run_id).stop_reason == "max_tokens"
    events = lite_stack.check(run_id)
    switch = next(event.seq for event in events if event.attempt == 2)
    assert [event.attempt for event in events[switch:]] == [2] * (len(events) - switch)


def test_a_device_that_hangs_ends_its_worker_and_the_run_goes_on_elsewhere(
    lite_stack: Stack, start_worker: StartWorker
) -> None:
    hanging = start_worker(lite_stack, Plan(step_s=0.005, faults={"H": {20: "hang"}}), watchdog_s=1.0)
    run_id = lite_stack.submit("H", HUNDRED)
    assert hanging.wait() == 70
    start_worker(lite_stack, SLOW)
    assert lite_stack.wait_ended(run_id).stop_reason == "max_tokens"
    assert attempts(lite_stack.check(run_id)) == [1, 2]


@pytest.mark.parametrize("hint", [True, False])
def test_a_cancel_of_a_run_whose_worker_died_ends_it(lite_stack: Stack, start_worker: StartWorker, hint: bool) -> None:
    worker = start_worker(lite_stack, SLOWER)
    run_id = lite_stack.submit(settings=HUNDRED)
    lite_stack.wait_tokens(run_id, 30)
    worker.kill()
    lite_stack.request_cancel(run_id, hint=hint)
    start_worker(lite_stack, SLOW)
    run = lite_stack.wait_ended(run_id)
    assert (run.stop_reason, run.attempt) == ("cancelled", 1)
    tokens = [e.payload for e in lite_stack.check(run_id) if isinstance(e.payload, TokenPicked)]
    assert len(tokens) >= 30


def test_a_worker_that_dies_between_the_commit_and_the_news_leaves_one_ending(
    lite_stack: Stack, start_worker: StartWorker
) -> None:
    worker = start_worker(lite_stack, SLOWER)
    run_id = lite_stack.submit(settings=GREEDY.with_changes(max_tokens=50))
    lite_stack.wait_tokens(run_id, 30)
    with lite_stack.valkey.client() as client:
        client.execute_command("CLIENT", "PAUSE", "30000", "WRITE")
        wait_until(lambda: lite_stack.row(run_id).status == "finished", what="the commit")
        worker.kill()
        client.execute_command("CLIENT", "UNPAUSE")
    assert b'"ended"' not in b"".join(lite_stack.stream(run_id))
    assert not lite_stack.row(run_id).ended_published
    start_worker(lite_stack, SLOW)
    start_worker(lite_stack, SLOW)
    lite_stack.wait_ended(run_id)
    time.sleep(1)
    events = lite_stack.check(run_id, in_stream=False)
    told = [Event.decode(data) for data in lite_stack.stream(run_id)]
    assert [event.type for event in told].count("ended") == 1
    assert told[-1] == events[-1]
