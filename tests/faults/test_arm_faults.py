"""Workers that die, sleep or leave with a whole comparison: every arm still reaches its one ending."""

import signal
import time

from tests.fakes.arms import submit_arms
from tests.fakes.services import wait_until
from tests.fakes.stack import GREEDY, Stack, token_ids
from tests.fakes.worker import Plan, WorkerProcess
from tests.fakes.worker_side import StartWorker, replace_the_dead
from tests.faults.test_worker_faults import stop_outside_a_write

ARM = GREEDY.with_changes(max_tokens=60)
SLOW = Plan(step_s=0.005)  # for each of the runs
SLOWER = Plan(step_s=0.02)


def owner_of(stack: Stack, arms: list[str], workers: list[WorkerProcess]) -> tuple[WorkerProcess, WorkerProcess]:
    """The one that has all the arms, once they run, and the other."""
    wait_until(lambda: all(stack.row(run_id).status == "running" for run_id in arms), what="the claim of every arm")
    (owner,) = {stack.row(run_id).lease_owner for run_id in arms}
    (mine,) = [w for w in workers if f"-{w.pid}-" in str(owner)]
    (other,) = [w for w in workers if w is not mine]
    return mine, other


def check_whole(stack: Stack, arms: list[str], *, most_attempts: int = 2) -> None:
    for run_id in arms:
        run = stack.wait_ended(run_id)
        assert (run.stop_reason, run.attempt <= most_attempts) == ("max_tokens", True)
        events = stack.check(run_id)
        assert token_ids(events) == token_ids(stack.check(arms[0]))
        assert [event.type for event in events].count("started") == 1


def test_a_worker_that_is_killed_in_the_middle_of_a_comparison_loses_nothing(
    stack: Stack, start_worker: StartWorker
) -> None:
    workers = [start_worker(stack, SLOWER, rows=8) for _ in range(2)]
    arms = submit_arms(stack, 8, ARM)
    owner, _ = owner_of(stack, arms, workers)
    for run_id in arms:
        stack.wait_tokens(run_id, 10)
    owner.kill()
    check_whole(stack, arms)
    assert {stack.row(run_id).attempt for run_id in arms} == {2}


def test_a_worker_that_is_killed_between_the_claim_and_the_first_token_loses_nothing(
    lite_stack: Stack, start_worker: StartWorker
) -> None:
    workers = [start_worker(lite_stack, Plan(step_s=0.5), rows=8)]
    arms = submit_arms(lite_stack, 8, ARM)
    wait_until(lambda: lite_stack.row(arms[7]).status == "running", what="the claim of the last arm")
    workers[0].kill()
    start_worker(lite_stack, SLOW, rows=8)
    check_whole(lite_stack, arms)


def test_workers_killed_at_random_times_lose_no_arm(lite_stack: Stack, start_worker: StartWorker) -> None:
    arms = submit_arms(lite_stack, 8, ARM)
    for pause_s in (0.1, 0.5):
        worker = start_worker(lite_stack, SLOW, rows=4)
        time.sleep(pause_s)
        worker.kill()
    start_worker(lite_stack, SLOW, rows=4)
    check_whole(lite_stack, arms, most_attempts=3)


def test_a_worker_that_leaves_hands_its_arms_over(lite_stack: Stack, start_worker: StartWorker) -> None:
    workers = [start_worker(lite_stack, SLOWER, rows=8, drain_s=1) for _ in range(2)]
    arms = submit_arms(lite_stack, 8, ARM)
    owner, _ = owner_of(lite_stack, arms, workers)
    for run_id in arms:
        lite_stack.wait_tokens(run_id, 5)
    owner.signal(signal.SIGTERM)
    assert owner.wait() == 0
    assert owner.presence is None
    check_whole(lite_stack, arms)


def test_a_worker_that_wakes_up_after_its_arms_were_taken_over_writes_nothing(
    lite_stack: Stack, start_worker: StartWorker
) -> None:
    workers = [start_worker(lite_stack, SLOWER, rows=4) for _ in range(2)]
    arms = submit_arms(lite_stack, 4, ARM)
    owner, _ = owner_of(lite_stack, arms, workers)
    for run_id in arms:
        lite_stack.wait_tokens(run_id, 10)
    stop_outside_a_write(owner, lite_stack)
    check_whole(lite_stack, arms)
    told = [(lite_stack.stream(run_id), lite_stack.table(run_id)) for run_id in arms]
    owner.signal(signal.SIGCONT)
    after = lite_stack.submit(settings=GREEDY.with_changes(max_tokens=3))
    lite_stack.wait_ended(after)
    wait_until(lambda: owner.presence is not None, what="the sleeper's presence")
    assert [(lite_stack.stream(run_id), lite_stack.table(run_id)) for run_id in arms] == told


def test_an_arm_that_kills_its_worker_takes_none_of_the_others_with_it(
    lite_stack: Stack, start_worker: StartWorker
) -> None:
    """All four die together the first time; after that the arms that may have done it begin one at a time."""
    plan = Plan(step_s=0.002, faults={"K": {5: "kill"}})
    arms = submit_arms(lite_stack, 4, GREEDY.with_changes(max_tokens=200), prompts=("Q", "K", "Q", "Q"))
    replace_the_dead(lite_stack, lambda: start_worker(lite_stack, plan, rows=4), until=arms[1])
    poison = lite_stack.wait_ended(arms[1])
    assert (poison.stop_reason, poison.attempt) == ("worker_lost", 3)
    for run_id in (arms[0], *arms[2:]):
        run = lite_stack.wait_ended(run_id)
        assert (run.stop_reason, run.num_tokens) == ("max_tokens", 200)
        lite_stack.check(run_id)
