"""The page's side of a run, without the page: save and enqueue, read the stream, read the tables, check the laws."""

from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import select, update

from models.db.ledger import token_event
from models.db.runs import Run, Token
from models.db.session import Database
from models.events import Ended, Event, Status, TokenPicked
from models.names import CANCEL_CHANNEL, queue_for, stream_key
from models.sampling import Settings
from tests.fakes.rows import CHECKPOINT, new_run
from tests.fakes.services import Valkey, wait_until
from workers.celery_app import create_app, enqueue

GREEDY = Settings(temperature=0.0, seed=1, alternatives=3)


@dataclass
class Stack:
    """One database and one Valkey, as a client sees them."""

    valkey: Valkey
    database: Database

    def __post_init__(self) -> None:
        self._app = create_app(self.valkey.url)

    def save(self, prompt: str = "Q", settings: Settings = GREEDY, **columns: Any) -> str:
        """A queued row without a message; returns its id."""
        run = new_run(settings=settings, prompt=prompt, **columns)
        with self.database.write() as session:
            session.add(run)
        return run.id

    def enqueue(self, run_id: str, *, checkpoint: str = CHECKPOINT) -> None:
        enqueue(self._app, run_id, checkpoint=checkpoint)

    def submit(self, prompt: str = "Q", settings: Settings = GREEDY, **columns: Any) -> str:
        """A queued row, committed, and its message; returns its id."""
        run_id = self.save(prompt, settings, **columns)
        self.enqueue(run_id, checkpoint=columns.get("checkpoint", CHECKPOINT))
        return run_id

    def request_cancel(self, run_id: str, *, hint: bool = True) -> None:
        with self.database.write() as session:
            session.execute(update(Run).where(Run.id == run_id).values(cancel_requested=True))
        if hint:
            with self.valkey.client() as client:
                client.publish(CANCEL_CHANNEL, run_id)

    def row(self, run_id: str) -> Run:
        with self.database.read() as session:
            run = session.get(Run, run_id)
            assert run is not None
            return run

    def stream(self, run_id: str) -> list[bytes]:
        """The encoded events in the stream, in order."""
        with self.valkey.client() as client:
            entries = client.xrange(stream_key(run_id))
        for entry_id, fields in entries:
            assert entry_id == f"{Event.decode(fields[b'event']).seq + 1}-0".encode()
        return [fields[b"event"] for _, fields in entries]

    def table(self, run_id: str) -> list[bytes]:
        """The encoded events that the tables rebuild, in order."""
        with self.database.read() as session:
            tokens = [token_event(t) for t in session.scalars(select(Token).where(Token.run_id == run_id))]
        milestones = [Event.decode(orjson.dumps(m)) for m in self.row(run_id).milestones]
        return [event.encode() for event in sorted([*tokens, *milestones], key=lambda e: e.seq)]

    def num_tokens(self, run_id: str) -> int:
        """Tokens in the stream so far."""
        with self.valkey.client() as client:
            return max(0, int(client.xlen(stream_key(run_id))) - 2)

    def wait_tokens(self, run_id: str, number: int) -> None:
        wait_until(lambda: self.num_tokens(run_id) >= number, what=f"token {number} of run {run_id}")

    def wait_ended(self, run_id: str) -> Run:
        """The row once the run has ended and its readers were told."""
        wait_until(
            lambda: Status(self.row(run_id).status).is_terminal and self.row(run_id).ended_published,
            what=f"the end of run {run_id}",
        )
        return self.row(run_id)

    def num_waiting(self) -> int:
        """Messages on the queue."""
        with self.valkey.client() as client:
            return int(client.llen(queue_for(CHECKPOINT)))

    def check(self, run_id: str, *, in_stream: bool = True) -> list[Event]:
        """Check the laws of an ended run; returns its events.

        One ending, nothing after it, numbers without gap or repeat, the same bytes in stream and table, one text.
        `in_stream=False` for a run whose stream has lost entries: what is left must still be the table's.
        """
        encoded = self.table(run_id)
        events = [Event.decode(data) for data in encoded]
        assert [event.seq for event in events] == list(range(len(events)))
        assert [event.type for event in events].count("ended") == 1
        if in_stream:
            told = self.stream(run_id)
            differing = [pair for pair in zip(told, encoded, strict=False) if pair[0] != pair[1]]
            assert not differing, f"stream and table differ, first in {differing[0]}"
            assert len(told) == len(encoded), f"{len(told)} events in the stream, {len(encoded)} in the table"
        else:
            assert set(self.stream(run_id)) <= set(encoded)
        self._check_row(self.row(run_id), events)
        return events

    def _check_row(self, run: Run, events: list[Event]) -> None:
        ended = events[-1].payload
        assert isinstance(ended, Ended)
        tokens = [event.payload for event in events if isinstance(event.payload, TokenPicked)]
        assert [token.position for token in tokens] == list(range(len(tokens)))
        assert len(tokens) == ended.num_tokens == run.num_tokens
        assert "".join(token.text for token in tokens) + ended.tail == run.text
        assert (run.stop_reason, run.status) == (ended.stop.reason.value, ended.status.value)
        assert ended.stop.reason.status == ended.status
        assert run.lease_owner is None
        assert run.lease_until is None


def token_ids(events: list[Event]) -> list[int]:
    return [event.payload.token_id for event in events if isinstance(event.payload, TokenPicked)]
