"""What an owner may write, and how it is read back, on both databases."""

import pytest
from sqlalchemy import update

from models.db.base import database_now
from models.db.experiments import Experiment
from models.db.runs import Run
from models.db.session import Database
from models.errors import DatabaseUnavailableError, LeaseLostError
from models.events import Event, StopReason, StopRecord
from tests.fakes.events import ended, history, token
from tests.fakes.rows import new_run
from tests.integration.worker.stored import NewStore, claimed, finish, row, saved_events
from workers.overdue import Overdue
from workers.record import Record
from workers.store import check_tables


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


@pytest.mark.parametrize(
    ("owner", "is_arm", "user"), [("someone", True, "someone"), (None, True, "comparison"), (None, False, None)]
)
def test_a_run_is_its_owners_or_its_comparisons_or_its_own(
    database: Database, new_store: NewStore, owner: str | None, *, is_arm: bool, user: str | None
) -> None:
    comparison = Experiment(id="comparison", created_at=database_now(), checkpoint="c", prompt="p", num_arms=1)
    run = new_run(owner=owner, experiment_id=comparison.id if is_arm else None)
    with database.write() as session:
        session.add(comparison)
        session.flush()
        session.add(run)
    assert claimed(new_store("one"), run.id).user == (user or run.id)


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
