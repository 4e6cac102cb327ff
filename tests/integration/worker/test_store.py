"""The store on both databases: who owns a run, and what an owner may write."""

import threading
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest
from sqlalchemy import select, update

from models.db.base import database_now
from models.db.ledger import token_event
from models.db.runs import Run, Token
from models.db.session import Database
from models.errors import DatabaseUnavailableError, LeaseLostError
from models.events import Event, Status, StopReason, StopRecord
from tests.fakes.events import ended, history, token
from tests.fakes.rows import new_run
from workers.overdue import Overdue
from workers.record import Claim, Record
from workers.store import Store, check_tables

NewStore = Callable[..., Store]


@pytest.fixture
def new_store(database: Database) -> NewStore:
    def build(owner: str, lease_s: float = 30) -> Store:
        return Store(database, owner, lease_s=lease_s, facts={"weights_digest": "d" * 64})

    return build


@pytest.fixture
def run_id(database: Database) -> str:
    with database.write() as session:
        run = new_run()
        session.add(run)
    return run.id


def row(database: Database, run_id: str) -> Run:
    with database.read() as session:
        run = session.get(Run, run_id)
        assert run is not None
        return run


def saved_events(database: Database, run_id: str) -> list[bytes]:
    """The run's history as the table has it, encoded."""
    with database.read() as session:
        tokens = [token_event(t).encode() for t in session.scalars(select(Token).where(Token.run_id == run_id))]
        milestones = [orjson.dumps(m) for m in row(database, run_id).milestones]
    return sorted([*tokens, *milestones], key=lambda data: Event.decode(data).seq)


def claimed(store: Store, run_id: str) -> Claim:
    claim = store.claim(run_id)
    assert claim is not None
    return claim


def expire(database: Database, run_id: str) -> None:
    with database.write() as session:
        session.execute(update(Run).where(Run.id == run_id).values(lease_until=database_now(plus_s=-1)))


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


def test_what_is_saved_in_batches_is_read_back_byte_for_byte(
    database: Database, new_store: NewStore, run_id: str
) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    events = history(run_id, 40)
    record = Record(run_id)
    for start in range(0, len(events), 7):
        record.add_all(events[start : start + 7])
        assert store.save(claim.lease, record.unsaved()) is False
        record.mark_saved()
    assert saved_events(database, run_id) == [event.encode() for event in events]
    run = row(database, run_id)
    assert (run.num_tokens, run.num_prompt_tokens, run.prompt_token_ids) == (40, 3, [5, 6, 7])


def test_a_batch_that_is_saved_twice_is_there_once(database: Database, new_store: NewStore, run_id: str) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    record = Record(run_id)
    record.add_all(history(run_id, 5))
    store.save(claim.lease, record.unsaved())
    store.save(claim.lease, record.unsaved())
    assert len(saved_events(database, run_id)) == 7


def test_a_save_answers_whether_the_run_is_still_wanted(database: Database, new_store: NewStore, run_id: str) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    assert store.is_cancel_requested(claim.lease) is False
    with database.write() as session:
        session.execute(update(Run).values(cancel_requested=True))
    assert store.is_cancel_requested(claim.lease) is True
    record = Record(run_id)
    record.add_all(history(run_id, 1))
    assert store.save(claim.lease, record.unsaved()) is True


def finish(store: Store, claim: Claim, num_tokens: int = 3) -> Record:
    record = Record(claim.lease.run_id)
    record.add_all(history(claim.lease.run_id, num_tokens))
    record.add(Event(claim.lease.run_id, claim.lease.attempt, record.next_seq, ended(num_tokens=num_tokens)))
    store.finish(claim.lease, record.unsaved(), text=record.text, summary=record.summary)
    return record


def test_a_finished_run_has_its_ending_in_every_column(database: Database, new_store: NewStore, run_id: str) -> None:
    store = new_store("one")
    finish(store, claimed(store, run_id))
    run = row(database, run_id)
    assert (run.status, run.stop_reason, run.text, run.num_tokens) == ("finished", "max_tokens", " t0 t1 t2", 3)
    assert (run.lease_owner, run.lease_until, run.ended_published) == (None, None, False)
    assert (run.mean_logprob, run.min_logprob, run.max_rank, run.mean_entropy) == (-0.25, -0.375, 3, 1.5)
    assert run.ended_at is not None
    assert run.started_at is not None
    assert run.ended_at >= run.started_at
    assert run.timing is not None
    assert run.timing["decode_ms"] == 20.0


def test_a_finish_whose_answer_was_lost_may_be_repeated(database: Database, new_store: NewStore, run_id: str) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    finish(store, claim)
    finish(store, claim)
    assert len(saved_events(database, run_id)) == 6


def test_a_different_ending_is_refused_once_there_is_one(new_store: NewStore, run_id: str) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    finish(store, claim)
    with pytest.raises(LeaseLostError):
        finish(store, claim, num_tokens=2)


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


def test_the_second_attempt_sees_everything_that_the_first_one_saved(new_store: NewStore, run_id: str) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    record = Record(run_id)
    record.add_all(history(run_id, 9))
    record.ttft_ms = 55.5
    store.save(claim.lease, record.unsaved())
    store.release(claim.lease)
    again = Record.of_saved(claimed(new_store("two"), run_id))
    assert again.next_seq == record.next_seq
    assert again.token_ids == record.token_ids
    assert again.text == record.text
    assert again.summary == record.summary
    assert again.ttft_ms == 55.5


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


def test_an_ending_that_nobody_was_told_is_found_until_it_is_told(
    database: Database, new_store: NewStore, run_id: str
) -> None:
    store = new_store("one")
    record = finish(store, claimed(store, run_id))
    overdue = Overdue(database)
    assert overdue.unpublished_endings(5) == []
    with database.write() as session:
        session.execute(update(Run).values(ended_at=database_now(plus_s=-6)))
    assert overdue.unpublished_endings(5) == [record.milestones[-1]]
    store.mark_ended_published(run_id)
    assert overdue.unpublished_endings(5) == []


def test_a_deleted_run_is_lost_to_its_writer(database: Database, new_store: NewStore, run_id: str) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    with database.write() as session:
        session.delete(session.get(Run, run_id))
    with pytest.raises(LeaseLostError):
        finish(store, claim)


def test_text_that_databases_refuse_is_kept(database: Database, new_store: NewStore, run_id: str) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    record = Record(run_id)
    hostile = token(0, piece="\0", text="\0", token_bytes=b"\0\xff")
    record.add_all([*history(run_id, 0), Event(run_id, 1, 2, hostile)])
    record.add(Event(run_id, 1, 3, ended(stop=StopRecord(StopReason.MAX_TOKENS, message="\0"))))
    store.finish(claim.lease, record.unsaved(), text=record.text, summary=record.summary)
    assert row(database, run_id).text == "\0"
    assert Event.decode(saved_events(database, run_id)[2]).payload == hostile


def test_a_database_without_tables_says_what_to_do(tmp_path: object) -> None:
    database = Database(f"sqlite:///{tmp_path}/empty.sqlite3")
    with pytest.raises(DatabaseUnavailableError, match="alembic upgrade head"):
        check_tables(database)


def test_a_lease_names_the_attempt_that_it_belongs_to(new_store: NewStore, run_id: str) -> None:
    store = new_store("one")
    claim = claimed(store, run_id)
    with pytest.raises(LeaseLostError, match="Attempt 7 no longer owns"):
        store.is_cancel_requested(replace(claim.lease, attempt=7))
