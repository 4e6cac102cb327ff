"""Which arms a claim takes along, on both databases; two workers that claim at once never part or double them."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import update

from models.db.runs import Run
from models.db.session import Database
from tests.fakes.arms import save_arms
from tests.fakes.rows import new_run
from tests.fakes.stack import Stack
from tests.integration.worker.stored import NewStore, claimed, expire, row
from workers.overdue import Overdue
from workers.record import Claim


def ids(claims: list[Claim]) -> list[str]:
    return [claim.lease.run_id for claim in claims]


def change(database: Database, run_id: str, **values: Any) -> None:
    with database.write() as session:
        session.execute(update(Run).where(Run.id == run_id).values(**values))


def test_the_next_arms_go_with_the_one_whose_message_came(stack: Stack, new_store: NewStore) -> None:
    arms = save_arms(stack, 6)
    claims = new_store("one").claim_with_arms(arms[2], 3)
    assert ids(claims) == [arms[2], arms[0], arms[1], arms[3]]
    for claim in claims:
        run = row(stack.database, claim.lease.run_id)
        assert (run.status, run.attempt, run.lease_owner) == ("running", 1, "one")
        assert run.lease_until is not None
        assert run.started_at is not None
        assert (claim.lease.attempt, claim.user) == (1, run.experiment_id)
    assert [row(stack.database, run_id).status for run_id in arms[4:]] == ["queued", "queued"]


def test_what_is_taken_along_is_not_taken_again(stack: Stack, new_store: NewStore) -> None:
    arms = save_arms(stack, 3)
    assert len(new_store("one").claim_with_arms(arms[0], 7)) == 3
    other = new_store("two")
    for run_id in arms:
        assert other.waiting(run_id) is None
        assert other.claim(run_id) is None
        assert other.claim_with_arms(run_id, 7) == []


def test_only_queued_fresh_wanted_arms_of_this_comparison_and_checkpoint_go_along(
    stack: Stack, new_store: NewStore
) -> None:
    arms, others = save_arms(stack, 7), save_arms(stack, 2)
    alone = new_run()
    with stack.database.write() as session:
        session.add(alone)
    change(stack.database, arms[1], attempt=1)
    change(stack.database, arms[2], cancel_requested=True)
    change(stack.database, arms[3], checkpoint="another")
    change(stack.database, arms[4], status="running", lease_owner="two")
    change(stack.database, arms[5], status="finished")
    claims = new_store("one").claim_with_arms(arms[0], 8)
    assert ids(claims) == [arms[0], arms[6]]
    assert {row(stack.database, run_id).status for run_id in (*others, alone.id)} == {"queued"}


def test_a_run_of_no_comparison_takes_nobody_along(stack: Stack, new_store: NewStore) -> None:
    alone, stranger = new_run(), new_run()
    with stack.database.write() as session:
        session.add_all([alone, stranger])
    assert ids(new_store("one").claim_with_arms(alone.id, 8)) == [alone.id]
    assert row(stack.database, stranger.id).status == "queued"


def test_what_a_message_finds(stack: Stack, new_store: NewStore) -> None:
    (arm,), alone = save_arms(stack, 1), new_run()
    with stack.database.write() as session:
        session.add(alone)
    store = new_store("one")
    found = [store.waiting(run_id) for run_id in (arm, alone.id)]
    assert [(w.is_suspect, w.is_arm) for w in found if w] == [(False, True), (False, False)]
    assert store.waiting("no such run") is None
    claimed(store, arm)
    assert store.waiting(arm) is None
    expire(stack.database, arm)
    overdue = Overdue(stack.database)
    assert overdue.requeue(overdue.expired_leases()[0])
    waiting = store.waiting(arm)
    assert waiting is not None
    assert waiting.is_suspect


@pytest.mark.parametrize("round_number", range(5))
def test_workers_that_claim_at_once_part_no_arms_and_take_none_twice(
    stack: Stack, new_store: NewStore, round_number: int
) -> None:
    """Four workers with room for all, each with another arm's message: one of them has them all."""
    arms = save_arms(stack, 8)
    stores = [new_store(f"worker-{n}") for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(store.claim_with_arms, arms[n + round_number % 3], 7) for n, store in enumerate(stores)]
        found = [future.result() for future in waiting]
    assert sorted(len(claims) for claims in found) == [0, 0, 0, 8]
    assert len({row(stack.database, run_id).lease_owner for run_id in arms}) == 1
    assert {row(stack.database, run_id).attempt for run_id in arms} == {1}


def test_workers_with_less_room_share_them(stack: Stack, new_store: NewStore) -> None:
    arms = save_arms(stack, 8)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(new_store(f"worker-{n}").claim_with_arms, arms[n], 2) for n in range(4)]
        found = [run_id for future in waiting for run_id in ids(future.result())]
    assert len(found) == len(set(found))
    assert set(found) <= set(arms)
    assert {row(stack.database, run_id).attempt for run_id in found} == {1}
