"""A beam search through a real worker: its lineage is told once, and a later attempt tells the rest."""

from dataclasses import replace

import orjson
import pytest
from sqlalchemy import insert, update

from models.beams import BeamsTraced
from models.db.ledger import token_row
from models.db.runs import Run, Token
from models.events import Ended, Event, Resumed, TokenPicked
from models.sampling import Settings
from tests.fakes.services import wait_until
from tests.fakes.stack import GREEDY, Stack, token_ids
from tests.fakes.worker import TEXT, Plan
from tests.fakes.worker_side import StartWorker

SEARCH = GREEDY.with_changes(num_beams=3, max_tokens=6)


def lineage(events: list[Event]) -> BeamsTraced:
    """The only one, right before the end."""
    assert [event.type for event in events].count("beams") == 1
    payload = events[-2].payload
    assert isinstance(payload, BeamsTraced)
    return payload


def ending(events: list[Event]) -> Ended:
    payload = events[-1].payload
    assert isinstance(payload, Ended)
    return payload


def save_part(stack: Stack, events: list[Event], settings: Settings) -> str:
    """A queued row whose first attempt has saved these events of another run."""
    run_id = stack.save(settings=settings, attempt=1)
    mine = [replace(event, run_id=run_id) for event in events]
    tokens = [token_row(event) for event in mine if isinstance(event.payload, TokenPicked)]
    milestones = [orjson.loads(event.encode()) for event in mine if not isinstance(event.payload, TokenPicked)]
    with stack.database.write() as session:
        session.execute(update(Run).where(Run.id == run_id).values(milestones=milestones))
        if tokens:
            session.execute(insert(Token), tokens)
    return run_id


def test_a_search_is_told_whole_and_resumed_from_anywhere(stack: Stack, start_worker: StartWorker) -> None:
    start_worker(stack)
    run_id = stack.submit(settings=SEARCH)
    run = stack.wait_ended(run_id)
    whole = stack.check(run_id)
    assert [event.type for event in whole] == ["started", "prefilled", *["token"] * 6, "beams", "ended"]
    assert (lineage(whole).num_beams, lineage(whole).num_steps) == (3, 6)
    assert TEXT.startswith(run.text)
    assert (run.kv_positions, run.kv_bytes) == (3 * (1 + 5), ending(whole).kv_bytes)
    for num_saved in (2, 5, 8, 9):  # before the first token, amid them, after the last, after the lineage
        part = save_part(stack, whole[:num_saved], SEARCH)
        stack.enqueue(part)
        assert stack.wait_ended(part).text == run.text
        events = stack.check(part)
        (resumed,) = [event.payload for event in events if isinstance(event.payload, Resumed)]
        assert resumed.from_position == max(0, min(num_saved, 8) - 2)
        assert token_ids(events) == token_ids(whole)
        assert ending(events).stop == ending(whole).stop
        traced = [event.payload for event in events if isinstance(event.payload, BeamsTraced)]
        assert traced == [lineage(whole)]


def test_a_bound_search_is_told_whole_and_resumed(stack: Stack, start_worker: StartWorker) -> None:
    """The script's own words are among the choices; another of them may end."""
    settings = SEARCH.with_changes(constraint={"choice": [" the quick brown fox", " the quick cat", "a"]})
    start_worker(stack)
    run_id = stack.submit(settings=settings)
    run = stack.wait_ended(run_id)
    whole = stack.check(run_id)
    assert (run.text, run.stop_reason) == (" the quick brown fox", "constraint_complete")
    assert [event.type for event in whole] == ["started", "prefilled", *["token"] * 4, "beams", "ended"]
    part = save_part(stack, whole[:4], settings)
    stack.enqueue(part)
    assert stack.wait_ended(part).text == run.text
    events = stack.check(part)
    assert (token_ids(events), ending(events).stop) == (token_ids(whole), ending(whole).stop)
    (traced,) = [event.payload for event in events if isinstance(event.payload, BeamsTraced)]
    assert traced == lineage(whole)


def test_a_worker_that_dies_amid_a_search(lite_stack: Stack, start_worker: StartWorker) -> None:
    settings = SEARCH.with_changes(max_tokens=20)
    first = start_worker(lite_stack, Plan(step_s=0.05))
    run_id = lite_stack.submit(settings=settings)
    wait_until(lambda: len(lite_stack.stream(run_id)) == 2, what="the prefill")
    first.kill()
    start_worker(lite_stack)
    run = lite_stack.wait_ended(run_id)
    events = lite_stack.check(run_id)
    assert (run.stop_reason, run.attempt, run.num_tokens) == ("max_tokens", 2, 20)
    assert lineage(events).num_steps == 20


@pytest.mark.parametrize("reason", ["cancelled", "time_limit"])
def test_a_search_that_is_stopped_shows_its_best_beam(
    lite_stack: Stack, start_worker: StartWorker, reason: str
) -> None:
    limits = {"time_limit_s": 2} if reason == "time_limit" else {}
    start_worker(lite_stack, Plan(step_s=0.05), **limits)
    run_id = lite_stack.submit(settings=SEARCH.with_changes(max_tokens=500))
    wait_until(lambda: len(lite_stack.stream(run_id)) == 2, what="the prefill")
    if reason == "cancelled":
        lite_stack.request_cancel(run_id)
    run = lite_stack.wait_ended(run_id)
    events = lite_stack.check(run_id)
    assert run.stop_reason == reason
    assert TEXT.startswith(run.text)
    assert len(lineage(events).beam_indices) == run.num_tokens == len(token_ids(events)) < 500
