"""Events on their way to Redis: one thread, one bounded buffer, and a fence against writers that have been replaced.

The stream's entry ids are the events' numbers, so an event that is sent twice is stored once. What Redis does not take
(away, out of memory) waits here and, past the bound, is dropped from the stream alone: readers fill gaps from the
database. Nothing here ever makes a run wait.
"""

import logging
import queue
import threading
import time
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
MAX_WAIT_S: Final = 0.004

# KEYS: (stream, attempt)... ARGV: most entries of a stream, then for each stream: fence, TTL, 1 when its last event
# closes it, the number of events, (id, event)... Events that a stream has, and those of writers that are fenced off,
# are passed over. Returns the number of new entries, or the first error: a stream that gives one gets nothing more and
# is not closed, while the others get theirs. The TTL is renewed now and then: a command less for most tokens.
_PUBLISH: Final = """
local added = 0
local refusal = nil
local at = 2
for k = 1, #KEYS, 2 do
  local fence, ttl, closes, num = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2] == '1', tonumber(ARGV[at + 3])
  local first, last = at + 4, at + 2 + 2 * num
  local known = tonumber(redis.call('GET', KEYS[k + 1]) or '-1')
  if fence >= known then
    local renews = closes or fence > known
    for i = first, last, 2 do
      local answer = redis.pcall('XADD', KEYS[k], 'MAXLEN', '~', ARGV[1], ARGV[i] .. '-0', 'event', ARGV[i + 1])
      if type(answer) == 'string' then
        added = added + 1
        renews = renews or tonumber(ARGV[i]) % 64 == 1
      elseif not string.find(answer.err, 'equal or smaller', 1, true) then
        refusal = refusal or answer
        renews = false
        break
      end
    end
    if renews then
      if closes then fence = fence + 1 end
      redis.call('SET', KEYS[k + 1], string.format('%d', fence), 'EX', ttl)
      redis.call('EXPIRE', KEYS[k], ttl)
    end
  end
  at = last + 2
end
return refusal or added
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
    sent: "Future[bool] | None"  # for whoever wants to know

    @property
    def group(self) -> tuple[str, int, bool]:
        """Neighbours with the same value go into one call. An ending has its own, so that it closes the stream."""
        return self.event.run_id, self.fence, isinstance(self.event.payload, Ended)

    def answer(self, was_sent: bool) -> None:
        if self.sent is not None:
            self.sent.set_result(was_sent)


class Publisher:
    """`post` and `publish` from any thread; the events of one run arrive in the order in which they were given.

    `on_failure` must end the process: a worker that has silently lost its publisher would work for nobody.
    """

    def __init__(
        self, client: redis.Redis, *, on_failure: Callable[[str], None], max_pending: int = MAX_PENDING
    ) -> None:
        self._client = client
        self._on_failure = on_failure
        self._max_pending = max_pending
        self._publish = client.register_script(_PUBLISH)
        # A queue in C: what the device thread and this one do in Python for every token, they do between two passes
        # that have driven everything else out of the processor's caches.
        self._pending: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._is_closing = False
        self._is_sending = False
        self._is_failing = False  # Redis did not take what was sent last
        self._is_idle = threading.Event()  # nothing was queued or on its way when it was last looked at
        self._thread = threading.Thread(target=self._work, name="publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, event: Event) -> None:
        """Queue an event of its attempt for its stream. Returns at once."""
        self._put(_Entry(event, event.attempt, None))

    def publish(self, event: Event, *, fence: int | None = None) -> "Future[bool]":
        """Like `post`, with an answer.

        `fence` is the attempt in whose name it is written, where that is not the event's own. The answer becomes True
        when the event is in the stream or the stream is closed to this writer, False when the event was dropped.
        """
        sent: Future[bool] = Future()
        self._put(_Entry(event, event.attempt if fence is None else fence, sent))
        return sent

    def _put(self, entry: _Entry) -> None:
        self._pending.put(entry)
        if self._pending.qsize() > self._max_pending:
            dropped = self._taken()
            if dropped is not None:
                dropped.answer(False)

    def _taken(self) -> _Entry | None:
        """The oldest entry, if there is one."""
        try:
            return self._pending.get_nowait()
        except queue.Empty:
            return None

    def wait_until_sent(self) -> None:
        """Wait, but for 4 ms at most, until Redis has answered to all that was queued. Not where the last try failed:
        an outage would cost every step those 4 ms.

        For a thread that is about to take every core and the interpreter from this one.
        """
        if self._is_failing:
            return
        self._is_idle.clear()
        if self._is_sending or not self._pending.empty():
            self._is_idle.wait(MAX_WAIT_S)

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
        self._is_closing = True
        self._pending.put(None)
        self._thread.join(timeout_s)

    def _work(self) -> None:
        try:
            while batch := self._next_batch():
                self._is_sending = True
                answered = self._send_until_answered(batch)
                for entry in batch:
                    entry.answer(answered)
                self._is_sending = False
                if self._pending.empty():
                    self._is_idle.set()
        except Exception:
            logger.critical("the publisher failed", exc_info=True)
            self._on_failure("the publisher failed")

    def _next_batch(self) -> list[_Entry]:
        """Wait for entries; without any where all were taken before the publisher was closed."""
        batch: list[_Entry] = []
        entry = self._taken() if self._is_closing else self._pending.get()
        while entry is not None:
            batch.append(entry)
            entry = self._taken() if len(batch) < BATCH_EVENTS else None
        return batch

    def _send_until_answered(self, batch: list[_Entry]) -> bool:
        """True when Redis took the batch; False when it kept answering with an error."""
        pause_s = 0.02
        num_refusals = 0
        while True:
            try:
                self._send(batch)
            except BrokerUnavailableError as exc:
                self._is_failing = True
                num_refusals += isinstance(exc.__cause__, redis.ResponseError)
                if num_refusals >= MAX_REFUSALS:
                    logger.warning("%d events are not in their streams: %s", len(batch), exc.message)
                    return False
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
            else:
                self._is_failing = False
                return True

    def _send(self, batch: list[_Entry]) -> None:
        keys: list[str] = []
        values: list[str | int | bytes] = [MAX_STREAM_EVENTS]
        for (run_id, fence, closes), group in groupby(batch, key=lambda entry: entry.group):
            entries = list(group)
            keys += stream_key(run_id), attempt_key(run_id)
            ttl_s = STREAM_TTL_AFTER_END_S if closes else STREAM_TTL_ACTIVE_S
            values += fence, ttl_s, int(closes), len(entries)
            for entry in entries:
                values += entry.event.seq + 1, entry.event.encode()
        with translated():
            self._publish(keys, values)
