"""Events on their way to Redis: one thread, one bounded buffer, and a fence against writers that have been replaced.

The stream's entry ids are the events' numbers, so an event that is sent twice is stored once. What Redis does not take
(away, out of memory) waits here and, past the bound, is dropped from the stream alone: readers fill gaps from the
database. Nothing here ever makes a run wait.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import redis

from models.errors import BrokerUnavailableError, LeaseLostError
from models.events import Ended, Event
from models.names import STREAM_TTL_ACTIVE_S, STREAM_TTL_AFTER_END_S, attempt_key, stream_key
from workers.broker import translated

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 10_000  # events, about 4 KB each
MAX_STREAM_EVENTS: Final = 20_000  # of one run; older ones are read from the database
BATCH_EVENTS: Final = 64
MAX_REFUSALS: Final = 8  # tries of a batch that Redis answers with an error
MAX_PAUSE_S: Final = 1.0

# KEYS: stream, attempt. ARGV: fence, TTL, most entries, 1 when the last event closes the stream, then (id, event)...
# Returns the number of new entries, or -1 when a later writer has fenced this one off.
_PUBLISH: Final = """
local fence = tonumber(ARGV[1])
if fence < tonumber(redis.call('GET', KEYS[2]) or '0') then return -1 end
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local top = newest and tonumber(string.match(newest[1], '^%d+')) or 0
local added = 0
for i = 5, #ARGV, 2 do
  if tonumber(ARGV[i]) > top then
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], ARGV[i] .. '-0', 'event', ARGV[i + 1])
    added = added + 1
  end
end
if ARGV[4] == '1' then fence = fence + 1 end
redis.call('SET', KEYS[2], string.format('%d', fence), 'EX', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return added
"""

# KEYS: stream, attempt. ARGV: fence, TTL, first id.
# Returns the newest entry's number and the entries from `first id` on, or false when fenced off.
_TAKE_OVER: Final = """
if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[2]) or '0') then return false end
redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[2])
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local top = newest and tonumber(string.match(newest[1], '^%d+')) or 0
return {top, redis.call('XRANGE', KEYS[1], ARGV[3], '+')}
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What a stream had when it was taken over."""

    events: tuple[Event, ...]  # those after the asked number, without a gap
    newest_seq: int  # of the whole stream; -1 when it is empty


@dataclass(frozen=True, slots=True)
class _Entry:
    event: Event
    fence: int
    sent: "Future[bool]"

    @property
    def group(self) -> tuple[str, int, bool]:
        """Neighbours with the same value go into one call. An ending has its own, so that it closes the stream."""
        return self.event.run_id, self.fence, isinstance(self.event.payload, Ended)


class Publisher:
    """`publish` from any thread; the events of one run arrive in the order in which they were given.

    `on_failure` must end the process: a worker that has silently lost its publisher would work for nobody.
    """

    def __init__(
        self, client: redis.Redis, *, on_failure: Callable[[str], None], max_pending: int = MAX_PENDING
    ) -> None:
        self._client = client
        self._on_failure = on_failure
        self._max_pending = max_pending
        self._pending: deque[_Entry] = deque()
        self._change = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def publish(self, event: Event, *, fence: int | None = None) -> "Future[bool]":
        """Queue an event for its stream. Returns at once.

        `fence` is the attempt in whose name it is written, where that is not the event's own. The answer becomes True
        when the event is in the stream or the stream is closed to this writer, False when the event was dropped.
        """
        entry = _Entry(event, event.attempt if fence is None else fence, Future())
        with self._change:
            self._pending.append(entry)
            dropped = self._pending.popleft() if len(self._pending) > self._max_pending else None
            self._change.notify()
        if dropped is not None:
            dropped.sent.set_result(False)
        return entry.sent

    def take_over(self, run_id: str, *, fence: int, after_seq: int) -> Found:
        """Shut out every writer below `fence` and return what the stream has after event `after_seq`, without a gap.

        What lies beyond a gap cannot be continued and leaves the stream. Raises LeaseLostError when a later writer
        was here first, BrokerUnavailableError.
        """
        with translated():
            answer: Any = self._client.eval(
                _TAKE_OVER, 2, stream_key(run_id), attempt_key(run_id), fence, STREAM_TTL_ACTIVE_S, f"{after_seq + 2}-0"
            )
        if answer is None:
            raise LeaseLostError(f"A later attempt than {fence} already writes the events of run {run_id}.")
        top, entries = answer
        events = [Event.decode(fields[1]) for _, fields in entries]
        joined = tuple(event for number, event in enumerate(events, after_seq + 1) if event.seq == number)
        if len(joined) == len(events):
            return Found(joined, top - 1)
        with translated():
            self._client.delete(stream_key(run_id))
        return Found(joined, -1)

    def close(self, timeout_s: float) -> None:
        """Send what is pending, for at most `timeout_s`, and stop."""
        with self._change:
            self._is_closing = True
            self._change.notify()
        self._thread.join(timeout_s)

    def _work(self) -> None:
        try:
            while batch := self._next_batch():
                answered = self._send_until_answered(batch)
                for entry in batch:
                    entry.sent.set_result(answered)
        except Exception:
            logger.critical("the publisher failed", exc_info=True)
            self._on_failure("the publisher failed")

    def _next_batch(self) -> list[_Entry]:
        with self._change:
            while not self._pending and not self._is_closing:
                self._change.wait()
            return [self._pending.popleft() for _ in range(min(BATCH_EVENTS, len(self._pending)))]

    def _send_until_answered(self, batch: list[_Entry]) -> bool:
        """True when Redis took the batch; False when it kept answering with an error."""
        pause_s = 0.02
        num_refusals = 0
        while True:
            try:
                self._send(batch)
            except BrokerUnavailableError as exc:
                num_refusals += isinstance(exc.__cause__, redis.ResponseError)
                if num_refusals >= MAX_REFUSALS:
                    logger.warning("%d events are not in their streams: %s", len(batch), exc.message)
                    return False
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
            else:
                return True

    def _send(self, batch: list[_Entry]) -> None:
        with translated():
            pipeline = self._client.pipeline(transaction=False)
            for (run_id, fence, closes), entries in groupby(batch, key=lambda entry: entry.group):
                pairs = [part for entry in entries for part in (entry.event.seq + 1, entry.event.encode())]
                pipeline.eval(_PUBLISH, 2, stream_key(run_id), attempt_key(run_id), *_header(fence, closes), *pairs)
            pipeline.execute()


def _header(fence: int, closes: bool) -> list[int]:
    ttl_s = STREAM_TTL_AFTER_END_S if closes else STREAM_TTL_ACTIVE_S
    return [fence, ttl_s, MAX_STREAM_EVENTS, int(closes)]
