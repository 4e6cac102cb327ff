"""Who owns a run, on both databases: claims, leases, adoption, and what is overdue."""

import threading
from dataclasses import replace

import pytest
from sqlalchemy import select, update

from models.db.base import database_now
from models.db.runs import Run
from models.db.session import Database
from models.errors import LeaseLostError
from models.events import Status
from tests.fakes.events import history
from tests.fakes.rows import new_run
from tests.integration.worker.stored import NewStore, claimed, expire, finish, row, saved_events
from workers.overdue import Overdue
from workers.record import Claim, Record


def test_a_claim_takes_the_run_with_a_lease_in_database_time(
    database: Database, new_store: NewStore, run_id: str
) -> None:
    claim = claimed(new_store("one"), run_id)
    run = row(database, run_id)
    assert (run.status, run.attempt, run.lease_owner, run.weights_digest) == ("running", 1, "one", "d" * 64)
    with database.read() as session:
        is_ahead = Run.lease_until.between(database_now(plus_s=28), database_now(plus_s=31))
        assert session.scalar(select(Run.id).where(is_ahead)) == run_id
    assert claim.queued_s >= 0
    assert claim.running_s >= 0


def test_of_fifty_claims_at_once_one_succeeds(new_store: NewStore, run_id: str) -> None:
    claims: list[Claim | None] = []

    def take(number: int) -> None:
        claims.append(new_store(f"worker-{number}").claim(run_id))

    threads = [threading.Thread(target=take, args=(n,)) for n in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claims) == 50
    assert sum(claim is not None for claim in claims) == 1


def test_a_run_that_does_not_exist_is_not_claimed(new_store: NewStore) -> None:
    assert new_store("one").claim("no such run") is None


@pytest.mark.parametrize("change", ["attempt", "owner", "status"])
def test_whoever_lost_the_lease_writes_nothing(
    database: Database, new_store: NewStore, run_id: str, change: str
) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    values = {"attempt": {"attempt": 2}, "owner": {"lease_owner": "two"}, "status": {"status": Status.QUEUED.value}}
    with database.write() as session:
        session.execute(update(Run).values(**values[change]))
    record = Record(run_id)
    record.add_all(history(run_id, 5))
    with pytest.raises(LeaseLostError):
        store.save(claim.lease, record.unsaved())
    with pytest.raises(LeaseLostError):
        finish(store, claim)
    with pytest.raises(LeaseLostError):
        store.is_cancel_requested(claim.lease)
    with pytest.raises(LeaseLostError):
        store.release(claim.lease)
    until = row(database, run_id).lease_until
    store.renew([claim.lease])
    assert row(database, run_id).lease_until == until
    assert saved_events(database, run_id) == []


def test_a_renewed_lease_does_not_expire(database: Database, new_store: NewStore, run_id: str) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    expire(database, run_id)
    overdue = Overdue(database)
    assert [expired.run_id for expired in overdue.expired_leases()] == [run_id]
    store.renew([claim.lease])
    assert overdue.expired_leases() == []


def test_an_expired_run_is_requeued_once_and_claimed_as_the_next_attempt(
    database: Database, new_store: NewStore, run_id: str
) -> None:
    first = claimed(new_store("one"), run_id)
    expire(database, run_id)
    overdue = Overdue(database)
    (expired,) = overdue.expired_leases()
    assert overdue.requeue(expired) is True
    assert overdue.requeue(expired) is False
    second = claimed(new_store("two"), run_id)
    assert (first.lease.attempt, second.lease.attempt) == (1, 2)
    assert second.queued_s == pytest.approx(first.queued_s), "waiting is counted up to the first claim"


def test_an_adopted_run_counts_no_attempt_and_keeps_its_old_owner_out(
    database: Database, new_store: NewStore, run_id: str
) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    assert store.adopt_expired(run_id) is None
    expire(database, run_id)
    adopted = store.adopt_expired(run_id)
    assert adopted is not None
    assert adopted.lease.attempt == 1
    with pytest.raises(LeaseLostError):
        finish(store, claim)
    finish(store, adopted)


def test_only_a_queued_run_with_a_request_is_adopted_to_be_cancelled(
    database: Database, new_store: NewStore, run_id: str
) -> None:
    store = new_store("one")
    assert store.adopt_cancelled(run_id) is None
    with database.write() as session:
        session.execute(update(Run).values(cancel_requested=True))
    assert Overdue(database).cancelled_in_queue() == [run_id]
    assert store.adopt_cancelled(run_id) is not None
    assert Overdue(database).cancelled_in_queue() == []


def test_giving_up_lets_every_lease_of_this_worker_run_out(database: Database, new_store: NewStore) -> None:
    runs = [new_run(), new_run()]
    with database.write() as session:
        session.add_all(runs)
    claimed(new_store("one"), runs[0].id)
    claimed(new_store("two"), runs[1].id)
    new_store("one").give_up()
    assert [expired.run_id for expired in Overdue(database).expired_leases()] == [runs[0].id]


def test_queued_runs_are_overdue_by_their_last_message(database: Database) -> None:
    never = new_run(created_at=database_now(plus_s=-60), enqueued_at=None)
    old = new_run(created_at=database_now(plus_s=-60), enqueued_at=database_now(plus_s=-50))
    fresh = new_run(created_at=database_now(plus_s=-60), enqueued_at=database_now())
    with database.write() as session:
        session.add_all([never, old, fresh])
    overdue = Overdue(database)
    assert {run.run_id for run in overdue.queued_since(10)} == {never.id, old.id}
    overdue.mark_enqueued(old.id)
    assert {run.run_id for run in overdue.queued_since(10)} == {never.id}


def test_a_lease_names_the_attempt_that_it_belongs_to(new_store: NewStore, run_id: str) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    with pytest.raises(LeaseLostError, match="Attempt 7 no longer owns"):
        store.is_cancel_requested(replace(claim.lease, attempt=7))
