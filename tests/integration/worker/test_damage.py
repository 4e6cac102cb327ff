"""Rows whose saved history cannot be read: each comes to an ending that says so, and the worker goes on."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from sqlalchemy import insert, text, update

from models.db.ledger import token_row
from models.db.runs import Run, Token
from models.events import Ended, StopReason
from models.names import stream_key
from tests.fakes.events import history
from tests.fakes.services import wait_until
from tests.fakes.stack import Stack, token_ids
from tests.fakes.worker_side import StartWorker

Row = dict[str, Any]
Damage = Callable[[list[Row], list[Row]], Any]


def lost_milestone(milestones: list[Row], _tokens: list[Row]) -> Any:
    return milestones[:1]


def unknown_milestone(milestones: list[Row], _tokens: list[Row]) -> Any:
    return [milestones[0], {"type": "nonsense"}]


def no_list(_milestones: list[Row], _tokens: list[Row]) -> Any:
    return {"a": 1}


def lost_token(milestones: list[Row], tokens: list[Row]) -> Any:
    del tokens[1]
    return milestones


def unreadable_token(milestones: list[Row], tokens: list[Row]) -> Any:
    tokens[1]["ledger"] = b"garbage"
    return milestones


# What is left whole, in tokens.
DAMAGES = {lost_milestone: 0, unknown_milestone: 0, no_list: 0, lost_token: 1, unreadable_token: 1}


def save_damaged(stack: Stack, damage: Damage, **columns: Any) -> str:
    """A queued row whose first attempt saved three tokens, some of which were lost since."""
    run_id = stack.save(attempt=1, **columns)
    events = history(run_id, 3)
    tokens = [token_row(event) for event in events[2:]]
    milestones = damage([orjson.loads(event.encode()) for event in events[:2]], tokens)
    with stack.database.write() as session:
        session.execute(update(Run).where(Run.id == run_id).values(milestones=milestones))
        session.execute(insert(Token), tokens)
    return run_id


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_ends_with_what_is_whole_and_says_so(
    stack: Stack, start_worker: StartWorker, damage: Damage
) -> None:
    run_id = save_damaged(stack, damage)
    stack.enqueue(run_id)
    worker = start_worker(stack)
    run = stack.wait_ended(run_id)
    events = stack.check(run_id)
    ended = events[-1].payload
    assert isinstance(ended, Ended)
    assert ended.stop.reason is StopReason.ERROR_INTERNAL
    assert "damaged" in (ended.stop.message or "")
    assert run.attempt == 2
    assert len(token_ids(events)) == DAMAGES[damage]
    assert worker.presence is not None


def test_a_damaged_run_that_waits_is_cancelled_by_a_hint_and_by_the_sweeper(
    lite_stack: Stack, start_worker: StartWorker
) -> None:
    hinted, swept = save_damaged(lite_stack, no_list), save_damaged(lite_stack, unreadable_token)
    worker = start_worker(lite_stack, requeue_after_s=60)
    pid = worker.pid
    lite_stack.request_cancel(hinted)
    lite_stack.request_cancel(swept, hint=False)
    for run_id in (hinted, swept):
        assert lite_stack.wait_ended(run_id).stop_reason == "cancelled"
        lite_stack.check(run_id)
    assert worker.presence is not None
    assert worker.pid == pid
    lite_stack.wait_ended(lite_stack.submit())


def test_what_the_stream_still_has_is_put_back(lite_stack: Stack, start_worker: StartWorker) -> None:
    run_id = save_damaged(lite_stack, unreadable_token)
    with lite_stack.valkey.client() as client:
        for event in history(run_id, 3):
            client.xadd(stream_key(run_id), {"event": event.encode()}, id=f"{event.seq + 1}-0")
    lite_stack.enqueue(run_id)
    start_worker(lite_stack)
    assert lite_stack.wait_ended(run_id).stop_reason == "error:internal"
    assert len(token_ids(lite_stack.check(run_id))) == 3


@pytest.mark.parametrize("milestones", ["[]", '[{"type": "nonsense"}]', "no json"])
def test_an_ending_that_cannot_be_read_holds_nobody_up(
    lite_stack: Stack, start_worker: StartWorker, milestones: str
) -> None:
    run_id = lite_stack.save(status="finished", stop_reason="eos")
    with lite_stack.database.write() as session:
        session.execute(
            text("UPDATE runs SET ended_at = '2020-01-01 00:00:00.000000', milestones = :m WHERE id = :id"),
            {"m": milestones, "id": run_id},
        )
    worker = start_worker(lite_stack)
    other = lite_stack.submit()
    lite_stack.wait_ended(other)
    published = text("SELECT ended_published FROM runs WHERE id = :id")

    def is_settled() -> bool:
        with lite_stack.database.read() as session:
            return bool(session.scalar(published, {"id": run_id}))

    wait_until(is_settled, what="the sweeper to leave the run alone")
    assert not worker.has_left
