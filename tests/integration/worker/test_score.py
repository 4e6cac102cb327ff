"""Runs that score a text, through a real worker process: told, saved, cancelled and resumed as any other."""

from models.events import Event, Passes, Resumed, TokenPicked
from tests.fakes import tokenizers
from tests.fakes.stack import GREEDY, Stack, token_ids
from tests.fakes.worker import SENTENCE, Plan
from tests.fakes.worker_side import StartWorker

SAMPLED = GREEDY.with_changes(temperature=1.0, max_tokens=1, stop=["fox"])  # no part of it ends a score
LONG = SENTENCE * 6
SLOW = Plan(step_s=0.01)


def ids(text: str) -> list[int]:
    return list(tokenizers.words()(text).input_ids)


def scored(events: list[Event]) -> list[TokenPicked]:
    return [event.payload for event in events if isinstance(event.payload, TokenPicked)]


def test_a_text_is_scored_whole_and_its_impossible_tokens_are_saved(stack: Stack, start_worker: StartWorker) -> None:
    start_worker(stack)
    settings = SAMPLED.with_changes(banned=[" over"])
    run_id = stack.submit(settings=settings, kind="score", given_text=SENTENCE)
    run = stack.wait_ended(run_id)
    events = stack.check(run_id)
    assert token_ids(events) == ids(SENTENCE)
    assert (run.stop_reason, run.text, run.given_text, run.kind) == ("max_tokens", SENTENCE, SENTENCE, "score")
    gone = [token for token in scored(events) if token.logprob is None]
    assert [token.text for token in gone] == [" over"]
    assert run.passes == {"prefill": 1 + 2, "decode": 0, "prompt_tokens_computed": 1}
    assert run.mean_logprob is not None


def test_a_cancel_ends_a_score_between_two_passes(lite_stack: Stack, start_worker: StartWorker) -> None:
    start_worker(lite_stack, SLOW)
    run_id = lite_stack.submit(settings=SAMPLED, kind="score", given_text=LONG)
    lite_stack.wait_tokens(run_id, 17)
    lite_stack.request_cancel(run_id)
    run = lite_stack.wait_ended(run_id)
    assert run.stop_reason == "cancelled"
    assert 17 <= run.num_tokens < len(ids(LONG))
    lite_stack.check(run_id)


def test_a_score_whose_worker_was_killed_goes_on(lite_stack: Stack, start_worker: StartWorker) -> None:
    first = start_worker(lite_stack, SLOW)
    run_id = lite_stack.submit(settings=SAMPLED, kind="score", given_text=LONG)
    lite_stack.wait_tokens(run_id, 33)
    first.kill()
    start_worker(lite_stack)
    run = lite_stack.wait_ended(run_id)
    events = lite_stack.check(run_id)
    assert (run.stop_reason, run.attempt, token_ids(events)) == ("max_tokens", 2, ids(LONG))
    (resumed,) = [event.payload for event in events if isinstance(event.payload, Resumed)]
    assert resumed.from_position >= 33
    assert run.passes is not None
    assert Passes(**run.passes).decode == 0


def test_the_tokens_before_a_fault_are_kept(lite_stack: Stack, start_worker: StartWorker) -> None:
    start_worker(lite_stack, Plan(faults={"N": {20: "nan"}}))
    run_id = lite_stack.submit("N", SAMPLED, kind="score", given_text=LONG)
    assert lite_stack.wait_ended(run_id).stop_reason == "error:numerical"
    assert token_ids(lite_stack.check(run_id)) == ids(LONG)[:20]


def test_a_stream_beside_a_score_goes_on(lite_stack: Stack, start_worker: StartWorker) -> None:
    start_worker(lite_stack, SLOW)
    score_id = lite_stack.submit(settings=SAMPLED, kind="score", given_text=LONG)
    lite_stack.wait_tokens(score_id, 17)
    run_id = lite_stack.submit(settings=GREEDY.with_changes(max_tokens=3))
    assert lite_stack.wait_ended(run_id).stop_reason == "max_tokens"
    assert lite_stack.row(score_id).status == "running"
    lite_stack.wait_ended(score_id)
