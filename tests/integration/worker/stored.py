"""What the store has written, read past it, and a lease brought to its end."""

from collections.abc import Callable

import orjson
from sqlalchemy import select, update

from models.db.base import database_now
from models.db.ledger import token_event
from models.db.runs import Run, Token
from models.db.session import Database
from models.events import Event
from tests.fakes.events import ended, history
from workers.record import Claim, Record
from workers.store import Store

NewStore = Callable[..., Store]


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


def finish(store: Store, claim: Claim, num_tokens: int = 3) -> Record:
    record = Record(claim.lease.run_id)
    record.add_all(history(claim.lease.run_id, num_tokens))
    record.add(Event(claim.lease.run_id, claim.lease.attempt, record.next_seq, ended(num_tokens=num_tokens)))
    store.finish(claim.lease, record.unsaved(), text=record.text, summary=record.summary)
    return record
