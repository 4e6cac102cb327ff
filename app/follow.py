"""Follow a run: every event once, in order, from any `seq` on, until the last.

The stream is quick and may lose things; the database is slow and complete. So events come from the stream while it has
the next one, and from the database where it does not: before the stream began, after it expired or was flushed, and
while Redis is away. `seq` decides which event is next, wherever it comes from.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Any, Final

import redis.asyncio
from redis.exceptions import RedisError

from app.broker import BLOCK_MS, connect_for_reading, leave_if_cancelled
from app.ids import check_id, not_found
from app.record import saved_events
from models.db.runs import Run
from models.db.session import Database
from models.errors import DatabaseUnavailableError, DecodeLabError
from models.events import Ended, Event, Status
from models.names import stream_key

_STREAM_COUNT: Final = 200
_SAVED_COUNT: Final = 500
_AWAY_POLL_S: Final = 0.5  # between looks at the database while Redis is away
_GAP_POLL_S: Final = 0.1  # a token is saved at the latest 0.5 s after it was sent
_RECONNECT_S: Final = 2.0
_GIVE_UP_S: Final = 60.0

logger = logging.getLogger(__name__)


class Follower:
    """Reads runs' events for any number of viewers; each `follow` has one connection of its own while it lasts."""

    def __init__(self, database: Database, redis_url: str) -> None:
        self._database = database
        self._redis_url = redis_url

    async def follow(self, run_id: str, after: int = -1) -> AsyncGenerator[Event, None]:
        """Yield the events with `seq` > `after`, each once and in order, and return after `Ended`.

        Raises NotFoundError where there is no such run, DatabaseUnavailableError where the database does not answer
        at the beginning, or for 60 s together with Redis, DecodeLabError for an event of a newer version. Close the
        iterator to stop early.
        """
        position = _Position(after + 1)
        stream = _Stream(self._redis_url, run_id)
        try:
            saved = await asyncio.to_thread(read_saved, self._database, run_id, position.next)
            batch: list[Event] | None = position.take_saved(saved)
            while batch is not None:
                for event in batch:
                    yield event
                    if isinstance(event.payload, Ended):
                        return
                batch = await self._next_batch(run_id, position, stream)
        finally:
            await stream.close()

    async def _next_batch(self, run_id: str, position: "_Position", stream: "_Stream") -> list[Event] | None:
        """The events that come next, empty after a wait in which none came, None when there will be no more."""
        # A run that is over has all its events in the database; its stream may be gone.
        if not position.is_over:
            found = await stream.read(position.next)
            if batch := position.take(found):
                return batch
            # Where nothing was new the read itself has waited; a gap and a dead server answer at once.
            if found or not stream.is_up:
                await asyncio.sleep(_GAP_POLL_S if found else _AWAY_POLL_S)
        return position.take_saved(await self._look_up(run_id, position.next, stream))

    async def _look_up(self, run_id: str, from_seq: int, stream: "_Stream") -> "Saved":
        try:
            return await asyncio.to_thread(read_saved, self._database, run_id, from_seq)
        except DatabaseUnavailableError:
            if stream.down_s > _GIVE_UP_S:
                raise
            return Saved([], is_over=False, last_seq=None)


@dataclass(frozen=True, slots=True)
class Saved:
    """What the database holds of a run from some `seq` on."""

    events: list[Event]  # without a gap
    is_over: bool
    last_seq: int | None  # of the last event that is saved, beyond a gap too

    def is_all_before(self, seq: int) -> bool:
        """Whether a reader whose next event is `seq` has all. Raises DecodeLabError when an ended record has a hole."""
        if self.events:
            return False
        if self.last_seq is not None and seq <= self.last_seq:
            raise DecodeLabError(f"This run has ended, but its saved events lack number {seq} of {self.last_seq}.")
        return True


def read_saved(database: Database, run_id: str, from_seq: int) -> Saved:
    """A bounded part of the saved events. Raises NotFoundError, DatabaseUnavailableError."""
    with database.read() as session:
        # The row before its tokens: a row that says the run is over has all of them.
        run = session.get(Run, check_id(run_id, of="run"))
        if run is None or run.deleted_at is not None:
            raise not_found(run_id, of="run")
        events = saved_events(session, run, from_seq=from_seq, limit=_SAVED_COUNT)
        last_seq = max((values["seq"] for values in run.milestones), default=None)
        return Saved(events, is_over=Status(run.status).is_terminal, last_seq=last_seq)


class _Position:
    """Which event is next, and whether more will be written."""

    def __init__(self, next_seq: int) -> None:
        self.next = next_seq
        self.is_over = False

    def take(self, events: Iterable[Event]) -> list[Event]:
        """The events that come next without a gap; what was taken before is passed over."""
        taken = []
        for event in events:
            if event.seq == self.next:
                taken.append(event)
                self.next += 1
            elif event.seq > self.next:
                break
        return taken

    def take_saved(self, saved: Saved) -> list[Event] | None:
        """Like `take`, from the database; None when the run is over and the reader has all of it."""
        self.is_over = saved.is_over
        batch = self.take(saved.events)
        return None if not batch and saved.is_over and saved.is_all_before(self.next) else batch


class _Stream:
    """One run's stream: reads block for a second at most, and a dead server is an empty answer."""

    def __init__(self, redis_url: str, run_id: str) -> None:
        self._redis_url = redis_url
        self._key = stream_key(run_id)
        self._client: redis.asyncio.Redis | None = None
        self._down_since: float | None = None
        self._retry_at = 0.0

    @property
    def is_up(self) -> bool:
        return self._down_since is None

    @property
    def down_s(self) -> float:
        """Seconds since the server stopped answering, 0 while it answers."""
        return 0.0 if self._down_since is None else time.monotonic() - self._down_since

    async def read(self, next_seq: int) -> list[Event]:
        """Events with `seq` >= `next_seq` that are in the stream, waiting up to a second for the first.

        Raises EventError for what is none, or of a newer version.
        """
        if time.monotonic() < self._retry_at:
            return []
        try:
            self._client = self._client or connect_for_reading(self._redis_url)
            # The entry of event `seq` has the id `{seq + 1}-0`, and a read begins after the id it is given.
            answer: Any = await self._client.xread({self._key: f"{next_seq}-0"}, count=_STREAM_COUNT, block=BLOCK_MS)
            leave_if_cancelled()
        except (RedisError, OSError) as exc:
            await self._lose(exc)
            return []
        self._down_since = None
        return [Event.decode(fields[b"event"]) for _, entries in answer or [] for _, fields in entries]

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _lose(self, exc: Exception) -> None:
        if self._down_since is None:
            logger.warning("the stream of %s is not readable (%s); reading the database", self._key, exc)
            self._down_since = time.monotonic()
        self._retry_at = time.monotonic() + _RECONNECT_S
        await self.close()
