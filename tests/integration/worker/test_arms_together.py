"""Arms of one prompt on one worker: two real worker processes, of which one takes a whole comparison."""

from models.sampling import Settings
from tests.fakes.arms import save_arms, submit_arms
from tests.fakes.services import wait_until
from tests.fakes.stack import GREEDY, Stack, token_ids
from tests.fakes.worker import SENTENCE, Plan
from tests.fakes.worker_side import StartWorker

SLOW = Plan(step_s=0.02)  # for each of the runs: nothing is over before it has been looked at
PATIENT = {"lease_s": 30}  # a machine that is busy with other tests costs no attempt
PROMPT = "Q" + SENTENCE
ARM = GREEDY.with_changes(max_tokens=40)


def owners(stack: Stack, run_ids: list[str]) -> set[str | None]:
    return {stack.row(run_id).lease_owner for run_id in run_ids}


def wait_running(stack: Stack, run_ids: list[str]) -> None:
    wait_until(lambda: all(stack.row(run_id).status == "running" for run_id in run_ids), what="the claim of every run")


def computed(stack: Stack, run_ids: list[str]) -> int:
    """Prompt positions that the passes of these runs have computed."""
    return sum((stack.wait_ended(run_id).passes or {})["prompt_tokens_computed"] for run_id in run_ids)


def test_all_arms_are_on_one_worker_and_their_prompt_is_computed_once(stack: Stack, start_worker: StartWorker) -> None:
    for _ in range(2):
        start_worker(stack, SLOW, rows=8, **PATIENT)
    alone = stack.submit(PROMPT, ARM.with_changes(max_tokens=1))
    num_prompt = computed(stack, [alone])
    arms = submit_arms(stack, 8, ARM, prompts=(PROMPT,))
    wait_running(stack, arms)
    assert len(owners(stack, arms)) == 1
    # The last position of a prompt is each arm's own: its logits are what it picks from.
    assert computed(stack, arms) <= num_prompt + 7
    for run_id in arms:
        assert stack.row(run_id).attempt == 1
        assert token_ids(stack.check(run_id)) == token_ids(stack.check(arms[0]))
    assert stack.num_waiting() == 0, "each message was taken"


def test_the_other_worker_is_free_for_others(lite_stack: Stack, start_worker: StartWorker) -> None:
    for _ in range(2):
        start_worker(lite_stack, SLOW, rows=4, **PATIENT)
    arms = submit_arms(lite_stack, 4, GREEDY.with_changes(max_tokens=400))
    wait_running(lite_stack, arms)
    others = [lite_stack.submit(settings=GREEDY.with_changes(max_tokens=5)) for _ in range(3)]
    for run_id in others:
        lite_stack.wait_ended(run_id)
    assert {lite_stack.row(run_id).status for run_id in arms} == {"running"}, "nobody waited for the arms"
    for run_id in arms:
        lite_stack.request_cancel(run_id)
        assert lite_stack.wait_ended(run_id).stop_reason == "cancelled"


def test_arms_beyond_the_rows_go_to_another_worker(lite_stack: Stack, start_worker: StartWorker) -> None:
    for _ in range(2):
        start_worker(lite_stack, SLOW, rows=4, **PATIENT)
    arms = submit_arms(lite_stack, 8, ARM)
    wait_running(lite_stack, arms)
    by_owner = [lite_stack.row(run_id).lease_owner for run_id in arms]
    assert sorted(by_owner.count(owner) for owner in set(by_owner)) == [4, 4]
    for run_id in arms:
        assert lite_stack.wait_ended(run_id).attempt == 1
        lite_stack.check(run_id)


def test_a_worker_has_no_more_runs_than_rows(lite_stack: Stack, start_worker: StartWorker) -> None:
    """A comparison, and runs of others before and after it, on two rows: all end, never three at once."""
    start_worker(lite_stack, Plan(step_s=0.01), rows=2, **PATIENT)
    short = GREEDY.with_changes(max_tokens=20)
    runs = [lite_stack.submit(settings=short), *submit_arms(lite_stack, 5, short), lite_stack.submit(settings=short)]
    most = 0

    def all_ended() -> bool:
        nonlocal most
        rows = [lite_stack.row(run_id).status for run_id in runs]
        most = max(most, rows.count("running"))
        return set(rows) == {"finished"}

    wait_until(all_ended, what="the end of all runs")
    assert most <= 2
    for run_id in runs:
        assert lite_stack.wait_ended(run_id).attempt == 1
        lite_stack.check(run_id)


def test_an_arm_whose_message_was_lost_is_taken_along(lite_stack: Stack, start_worker: StartWorker) -> None:
    arms = save_arms(lite_stack, 3, GREEDY.with_changes(max_tokens=5))
    lite_stack.enqueue(arms[0])
    start_worker(lite_stack, rows=4, requeue_after_s=600)
    for run_id in arms:
        assert lite_stack.wait_ended(run_id).stop_reason == "max_tokens"
        lite_stack.check(run_id)


def test_an_arm_that_is_cancelled_in_the_queue_is_not_generated(lite_stack: Stack, start_worker: StartWorker) -> None:
    arms = submit_arms(lite_stack, 4, GREEDY.with_changes(max_tokens=5))
    lite_stack.request_cancel(arms[2], hint=False)
    start_worker(lite_stack, rows=4)
    endings = [lite_stack.wait_ended(run_id) for run_id in arms]
    assert [run.stop_reason for run in endings] == ["max_tokens", "max_tokens", "cancelled", "max_tokens"]
    assert endings[2].num_tokens == 0
    for run_id in arms:
        lite_stack.check(run_id)


def test_one_message_fifty_times_is_one_run(lite_stack: Stack, start_worker: StartWorker) -> None:
    arms = save_arms(lite_stack, 4, Settings(seed=1, temperature=0.0, max_tokens=60))
    for _ in range(50):
        lite_stack.enqueue(arms[3])
    for run_id in arms:
        lite_stack.enqueue(run_id)
    for _ in range(2):
        start_worker(lite_stack, Plan(step_s=0.01), rows=4, **PATIENT)
    for run_id in arms:
        assert lite_stack.wait_ended(run_id).attempt == 1
        lite_stack.check(run_id)
    wait_until(lambda: lite_stack.num_waiting() == 0, what="the end of the queue")
