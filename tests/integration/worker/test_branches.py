"""Branches through a real worker process: their opening is told and saved as any other tokens, and resumed."""

from models.events import Event, Passes, Started, TokenPicked
from tests.fakes import tokenizers
from tests.fakes.stack import GREEDY, Stack, token_ids
from tests.fakes.worker import SENTENCE, Plan
from tests.fakes.worker_side import StartWorker

SAMPLED = GREEDY.with_changes(temperature=1.0, max_tokens=60)
OPENING = list(tokenizers.words()(SENTENCE * 5).input_ids)


def told(events: list[Event]) -> list[TokenPicked]:
    return [event.payload for event in events if isinstance(event.payload, TokenPicked)]


def test_a_branch_begins_with_its_opening_and_its_parents_prompt_ids(stack: Stack, start_worker: StartWorker) -> None:
    start_worker(stack)
    prompt_ids = list(tokenizers.words()("Q").input_ids) * 2  # not what its text would become
    settings = SAMPLED.with_changes(max_tokens=len(OPENING) + 4)
    run_id = stack.submit(settings=settings, opening_ids=OPENING, prompt_token_ids=prompt_ids)
    run = stack.wait_ended(run_id)
    events = stack.check(run_id)
    assert token_ids(events)[: len(OPENING)] == OPENING
    (started,) = [event.payload for event in events if isinstance(event.payload, Started)]
    assert list(started.prompt_token_ids) == prompt_ids == run.prompt_token_ids
    assert run.kind == "generate"


def test_a_branch_whose_worker_was_killed_in_its_opening_goes_on(lite_stack: Stack, start_worker: StartWorker) -> None:
    settings = SAMPLED.with_changes(max_tokens=len(OPENING) + 4)
    first = start_worker(lite_stack, Plan(step_s=0.2))
    run_id = lite_stack.submit(settings=settings, opening_ids=OPENING)
    lite_stack.wait_tokens(run_id, 17)
    first.kill()
    start_worker(lite_stack)
    run = lite_stack.wait_ended(run_id)
    events = lite_stack.check(run_id)
    assert (run.attempt, token_ids(events)[: len(OPENING)]) == (2, OPENING)
    assert run.passes is not None
    whole = lite_stack.wait_ended(lite_stack.submit(settings=settings, opening_ids=OPENING))
    assert token_ids(lite_stack.check(whole.id)) == token_ids(events)
    assert Passes(**run.passes).decode == Passes(**(whole.passes or {})).decode
