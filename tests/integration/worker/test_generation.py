"""From a row and a message to stream and table, through a real worker process, for every way a run can end."""

import pytest

from models.events import Ended, Event, Prefilled, Started, TokenPicked
from models.sampling import Settings
from tests.fakes import tokenizers
from tests.fakes.stack import GREEDY, Stack, token_ids
from tests.fakes.worker import TEXT, Plan
from tests.fakes.worker_side import StartWorker


def settings(**changes: object) -> Settings:
    return GREEDY.with_changes(**changes)


def ending(events: list[Event]) -> Ended:
    payload = events[-1].payload
    assert isinstance(payload, Ended)
    return payload


def test_every_stop_reason_of_the_loop_is_the_same_in_stream_and_table(stack: Stack, start_worker: StartWorker) -> None:
    start_worker(stack, Plan(text=" the quick brown fox jumps", ends=True, context_length=40))
    runs = {
        "eos": stack.submit(settings=settings(max_tokens=30)),
        "max_tokens": stack.submit(settings=settings(max_tokens=3)),
        "stop_string": stack.submit(settings=settings(stop=["ick br"])),
        "stop_token": stack.submit(settings=settings(stop_token_ids=tokenizers.words()(" fox").input_ids)),
        "context_full": stack.submit("Z" * 37, settings(ignore_eos=True)),
    }
    for reason, run_id in runs.items():
        assert stack.wait_ended(run_id).stop_reason == reason
    texts = {reason: stack.row(run_id).text for reason, run_id in runs.items()}
    assert texts["eos"] == " the quick brown fox jumps"
    assert texts["max_tokens"] == " the quick brown"
    assert texts["stop_string"] == " the qu"
    for run_id in runs.values():
        stack.check(run_id)
    stop = ending(stack.check(runs["stop_string"])).stop
    assert (stop.matched, stop.span) == ("ick br", (7, 13))


def test_what_a_run_tells_is_complete(lite_stack: Stack, start_worker: StartWorker) -> None:
    worker = start_worker(lite_stack)
    run_id = lite_stack.submit("Question", settings(max_tokens=5, min_p=0.5, temperature=1.0))
    run = lite_stack.wait_ended(run_id)
    started, prefilled, *tokens = [event.payload for event in lite_stack.check(run_id)[:-1]]
    assert isinstance(started, Started)
    assert started.checkpoint == "scripted"
    assert len(started.prompt_token_ids) == len("Question")
    assert isinstance(prefilled, Prefilled)
    assert prefilled.num_prompt_tokens == len("Question")
    for token in tokens:
        assert isinstance(token, TokenPicked)
        assert token.kept == {"min_p": 1}
        assert [c.removed_by for c in token.candidates] == [None, "min_p", "min_p"]
    ended = ending(lite_stack.check(run_id))
    timing = ended.timing
    assert timing.queue_ms is not None
    assert timing.ttft_ms is not None
    assert 0 <= timing.queue_ms <= timing.ttft_ms < 10_000
    assert run.ttft_ms == timing.ttft_ms
    assert run.capsule is not None
    assert run.capsule["device"] == "cpu"
    assert run.capsule["batch_mode"] == "one pass a sequence"
    assert "torch" in run.capsule["versions"]
    assert worker.presence is not None
    assert run.num_prompt_tokens == len("Question")


def test_a_run_of_many_tokens_is_saved_while_it_runs(stack: Stack, start_worker: StartWorker) -> None:
    start_worker(stack, Plan(step_s=0.02))
    run_id = stack.submit(settings=settings(max_tokens=100))
    stack.wait_tokens(run_id, 60)
    assert 20 <= len(stack.table(run_id)) < 90, "batches arrive before the end"
    run = stack.wait_ended(run_id)
    stack.check(run_id)
    assert run.text == TEXT[: len(run.text)]


def test_fifty_messages_of_one_run_generate_it_once(stack: Stack, start_worker: StartWorker) -> None:
    start_worker(stack, Plan(step_s=0.01))
    start_worker(stack, Plan(step_s=0.01))
    run_id = stack.save(settings=settings(max_tokens=60))
    for _ in range(50):
        stack.enqueue(run_id)
    run = stack.wait_ended(run_id)
    assert run.attempt == 1
    stack.enqueue(run_id)
    next_run = stack.submit(settings=settings(max_tokens=2))
    stack.wait_ended(next_run)
    assert [event.attempt for event in stack.check(run_id)] == [1] * 63


def test_more_runs_than_rows_all_end_alike(lite_stack: Stack, start_worker: StartWorker) -> None:
    start_worker(lite_stack, Plan(step_s=0.002), rows=3)
    runs = [lite_stack.submit(settings=settings(max_tokens=40)) for _ in range(12)]
    for run_id in runs:
        lite_stack.wait_ended(run_id)
    assert len({tuple(token_ids(lite_stack.check(run_id))) for run_id in runs}) == 1


def test_a_fault_of_one_run_ends_it_with_its_tokens_and_disturbs_no_other(
    lite_stack: Stack, start_worker: StartWorker
) -> None:
    faults = {"N": "nan", "I": "infinity", "O": "nothing", "R": "raise"}
    plan = Plan(faults={first: {7: fault} for first, fault in faults.items()}, step_s=0.005)
    start_worker(lite_stack, plan, rows=6)
    others = [lite_stack.submit("Q", settings(max_tokens=30)) for _ in range(2)]
    for first in faults:
        run = lite_stack.wait_ended(run_id := lite_stack.submit(first, settings(max_tokens=30)))
        assert run.stop_reason == ("error:internal" if first == "R" else "error:numerical")
        assert (run.status, run.num_tokens, run.text) == ("failed", 7, TEXT[: len(run.text)])
        assert ending(lite_stack.check(run_id)).stop.message
    for run_id in others:
        run = lite_stack.wait_ended(run_id)
        assert (run.stop_reason, run.num_tokens) == ("max_tokens", 30)
        lite_stack.check(run_id)


def test_what_the_checkpoint_cannot_run_ends_with_a_sentence(lite_stack: Stack, start_worker: StartWorker) -> None:
    """The page refuses these; a row that comes in by another way must not hang."""
    start_worker(lite_stack, Plan(context_length=16))
    too_long = lite_stack.submit("Z" * 50)
    outside = lite_stack.submit(settings=settings(logit_bias={"99999": 1.0}))
    no_text = lite_stack.submit("\ud800")
    no_template = lite_stack.submit(messages=[{"role": "user", "content": "hi"}])
    no_chat = lite_stack.submit(messages=[{"role": "root", "content": "hi"}])
    for run_id, words in (
        (too_long, "50 tokens"),
        (outside, "outside the vocabulary"),
        (no_text, "surrogate"),
        (no_template, "scripted has no chat template; use a raw prompt"),
        (no_chat, "role 'root'"),
    ):
        run = lite_stack.wait_ended(run_id)
        assert run.stop_reason == "error:checkpoint"
        assert run.stop is not None
        assert words in run.stop["message"]
        lite_stack.check(run_id)


@pytest.mark.parametrize("hint", [True, False])
def test_a_cancel_ends_a_running_run_whether_or_not_its_hint_arrives(
    lite_stack: Stack, start_worker: StartWorker, hint: bool
) -> None:
    start_worker(lite_stack, Plan(step_s=0.02))
    run_id = lite_stack.submit(settings=settings(max_tokens=600))
    lite_stack.wait_tokens(run_id, 5)
    lite_stack.request_cancel(run_id, hint=hint)
    run = lite_stack.wait_ended(run_id)
    assert (run.stop_reason, run.status) == ("cancelled", "cancelled")
    assert 5 <= run.num_tokens < 300
    assert run.text == TEXT[: len(run.text)]
    lite_stack.check(run_id)


@pytest.mark.parametrize("hint", [True, False])
def test_a_cancel_ends_a_waiting_run_while_the_rows_are_busy(
    lite_stack: Stack, start_worker: StartWorker, hint: bool
) -> None:
    start_worker(lite_stack, Plan(step_s=0.02), rows=1)
    busy = lite_stack.submit(settings=settings(max_tokens=600))
    waiting = lite_stack.submit(settings=settings(max_tokens=600))
    lite_stack.wait_tokens(busy, 5)
    lite_stack.request_cancel(waiting, hint=hint)
    run = lite_stack.wait_ended(waiting)
    assert (run.stop_reason, run.num_tokens, run.attempt) == ("cancelled", 0, 0)
    assert [event.type for event in lite_stack.check(waiting)] == ["ended"]
    assert lite_stack.row(busy).status == "running"
    lite_stack.request_cancel(busy)
    lite_stack.wait_ended(busy)


def test_a_hint_that_the_row_does_not_confirm_is_ignored(lite_stack: Stack, start_worker: StartWorker) -> None:
    start_worker(lite_stack, Plan(step_s=0.01))
    run_id = lite_stack.submit(settings=settings(max_tokens=60))
    lite_stack.wait_tokens(run_id, 3)
    with lite_stack.valkey.client() as client:
        client.publish("decodelab:cancel", run_id)
        client.publish("decodelab:cancel", "no such run")
    assert lite_stack.wait_ended(run_id).stop_reason == "max_tokens"


def test_a_run_that_takes_too_long_ends_at_its_deadline(lite_stack: Stack, start_worker: StartWorker) -> None:
    start_worker(lite_stack, Plan(step_s=0.02), time_limit_s=1)
    run_id = lite_stack.submit(settings=settings(max_tokens=600))
    run = lite_stack.wait_ended(run_id)
    assert (run.stop_reason, run.status) == ("time_limit", "finished")
    assert 20 <= run.num_tokens <= 80
    lite_stack.check(run_id)
