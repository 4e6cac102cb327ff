"""One attempt at one run: from its claim to its ending, or to the moment when somebody else goes on.

Two threads meet here. The device thread calls `_on_output`, which numbers an event, gives it to the publisher and puts
it in the inbox; it never waits. The task's thread runs `run`, which empties the inbox into the record and writes the
record to the database in batches. It sleeps until a batch is due: woken for every token, the threads of all runs would
stand between the publisher and the interpreter.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import Final, TypeVar

from models.beams import BeamsTraced
from models.chat import Chat
from models.db.runs import PRODUCTIVE_TOKENS
from models.errors import DatabaseUnavailableError, DecodeLabError, LeaseLostError, UnavailableError
from models.events import Ended, Event, Payload, Prefilled, Resumed, Started, StopReason, StopRecord, TokenPicked
from models.sampling import Settings
from workers.engine.engine import Output, Request
from workers.engine.failures import reason_for
from workers.parts import Encoder, Parts, Waits
from workers.probation import Turn
from workers.record import Claim, Record

logger = logging.getLogger(__name__)

DATABASE_PATIENCE_S: Final = 600  # a run's results are kept this long while the database does not answer
MAX_PAUSE_S: Final = 2.0
_T = TypeVar("_T")


class _Signal(Enum):
    HAND_OVER = auto()
    DUE = auto()  # nothing came until the next flush was due


class Attempt:
    """`run` works in the caller's thread until the run has ended or is no longer this worker's."""

    def __init__(self, parts: Parts, claim: Claim, record: Record, turn: Turn) -> None:
        self._parts = parts
        self._turn = turn
        self._num_known_tokens = len(record.token_ids)
        self._claim = claim
        self._lease = claim.lease
        self._record = record
        self._claimed_at = time.monotonic()
        told = record.started
        if told is None:
            self._waits = parts.loading.waits(claim.queued_s, self._claimed_at)
        else:
            self._waits = Waits(told.queue_ms, told.load_ms)
        self._sequence_id = claim.lease.sequence_id
        self._inbox: deque[Event | Ended | _Signal] = deque()
        self._is_awaited = threading.Event()  # something in the inbox cannot wait until a flush is due
        self._numbering = threading.Lock()
        self._next_seq = record.next_seq
        self._has_prefilled = record.prefilled is not None
        self._has_traced = record.beams is not None
        self._is_closed = False
        self._is_leaving = False
        self._first_token_at: float | None = None
        self._flushed_at = time.monotonic()
        self._is_over_time = False

    def run(self) -> None:
        """Raises LeaseLostError when the run has another owner, UnavailableError when it must be tried again later."""
        try:
            self._generate()
        except (LeaseLostError, UnavailableError):
            self._close()
            raise
        except Exception as exc:
            logger.exception("run %s cannot go on", self._lease.run_id)
            self._close()
            if self._record.ended is not None:
                raise  # it has an ending that could not be saved; a second one would be a lie
            self._finish(self._record.ended_without_engine(stop_for(exc)))

    def hand_over(self) -> None:
        """Stop here and let another worker go on. From any thread; `run` does it and returns."""
        self._is_leaving = True
        self._put(_Signal.HAND_OVER)

    def look_for_cancel(self) -> None:
        """Ask the row, which alone knows, whether to cancel. From any thread. Raises LeaseLostError."""
        if self._parts.store.is_cancel_requested(self._lease):
            self._parts.host.cancel(self._sequence_id, StopReason.CANCELLED)

    def _generate(self) -> None:
        settings = Settings.parse(dict(self._claim.settings))
        told = self._record.started
        started = told or self._started(settings)
        self._emit(Resumed(from_position=len(self._record.token_ids)) if told else started)
        request = request_for(
            self._claim,
            self._parts.checkpoint,
            settings=settings,
            prompt_ids=started.prompt_token_ids,
            generated=tuple(self._record.token_ids),
        )
        self._parts.host.submit(request, self._on_output)
        while self._receive():
            if self._is_flush_due():
                self._flush()
            self._mind_the_time()

    def _started(self, settings: Settings) -> Started:
        """The beginning of the run, its prompt encoded. Raises PromptError."""
        checkpoint, messages, known_ids = self._parts.checkpoint, self._claim.messages, self._claim.prompt_ids
        if messages is None:
            text = None
            prompt_ids = known_ids or checkpoint.encode(self._claim.prompt, parse_special=settings.parse_special)
        else:
            prompt = checkpoint.encode_chat(Chat.parse(messages))
            text, prompt_ids = prompt.text, known_ids or prompt.token_ids
        return Started(
            checkpoint=checkpoint.info.name,
            device=checkpoint.info.device,
            dtype=checkpoint.info.dtype,
            prompt_token_ids=prompt_ids,
            queue_ms=self._waits.queue_ms,
            load_ms=self._waits.load_ms,
            prompt_text=text,
        )

    # On the device thread

    def _on_output(self, output: Output) -> None:
        match output.payload:
            case Ended() as ended:
                self._put(ended)  # numbered and told once it is committed
            case Prefilled() if self._has_prefilled:
                pass  # the first attempt has said so already
            case BeamsTraced() if self._has_traced:
                pass  # likewise
            case payload:
                self._emit(payload)

    def _emit(self, payload: Payload) -> None:
        with self._numbering:
            if self._is_closed:
                return
            event = Event(self._lease.run_id, self._lease.attempt, self._next_seq, payload)
            self._next_seq += 1
            if self._first_token_at is None and isinstance(payload, TokenPicked):
                self._first_token_at = time.monotonic()
            self._parts.publisher.post(event)
            is_token = isinstance(payload, TokenPicked)
            is_full = len(self._inbox) + 1 >= self._parts.limits.flush_tokens
            self._put(event, can_wait=is_token and not is_full and not self._turn.is_held)

    def _put(self, item: Event | Ended | _Signal, *, can_wait: bool = False) -> None:
        self._inbox.append(item)
        if not can_wait:
            self._is_awaited.set()

    # On the task's thread

    def _receive(self) -> bool:
        """Take one thing from the inbox, at the latest when a flush is due. False when the attempt is over."""
        match self._next():
            case Event() as event:
                self._add(event)
            case Ended() as ended:
                self._finish(self._record.of_whole_run(ended, attempt=self._lease.attempt))
                return False
            case _Signal.HAND_OVER:
                self._leave()
                return False
            case _Signal.DUE:
                pass
        return True

    def _next(self) -> Event | Ended | _Signal:
        if not self._inbox:
            due_in_s = self._flushed_at + self._parts.limits.flush_every_s - time.monotonic()
            self._is_awaited.wait(max(0.001, due_in_s))
            self._is_awaited.clear()  # before the look, so that nothing that is put after it goes unheard
        return self._inbox.popleft() if self._inbox else _Signal.DUE

    def _add(self, event: Event) -> None:
        if self._record.ttft_ms is None and self._first_token_at is not None:
            waited_s = self._claim.queued_s + self._claim.running_s + self._first_token_at - self._claimed_at
            self._record.ttft_ms = round(1000 * waited_s, 3)
        self._record.add(event)

    def _is_flush_due(self) -> bool:
        limits = self._parts.limits
        if self._turn.is_held and self._has_come_on:
            return True  # others wait for that
        is_old = time.monotonic() - self._flushed_at >= limits.flush_every_s
        return (is_old and not self._inbox) or self._record.num_unsaved >= limits.flush_tokens

    @property
    def _has_come_on(self) -> bool:
        return len(self._record.token_ids) >= self._num_known_tokens + PRODUCTIVE_TOKENS

    def _flush(self) -> None:
        """Save what is new, and learn from the row whether the run is still ours and wanted."""
        if self._record.num_unsaved:
            batch = self._record.unsaved()
            is_cancelled = self._patiently(lambda: self._parts.store.save(self._lease, batch))
            self._record.mark_saved()
            if self._has_come_on:
                self._turn.end()
        else:
            is_cancelled = self._patiently(lambda: self._parts.store.is_cancel_requested(self._lease))
        if is_cancelled:
            self._parts.host.cancel(self._sequence_id, StopReason.CANCELLED)
        self._flushed_at = time.monotonic()

    def _mind_the_time(self) -> None:
        running_s = self._claim.running_s + time.monotonic() - self._claimed_at
        if running_s >= self._parts.limits.time_limit_s and not self._is_over_time:
            self._is_over_time = True
            self._parts.host.cancel(self._sequence_id, StopReason.TIME_LIMIT)

    def _finish(self, ended: Ended) -> None:
        timing = replace(
            ended.timing,
            queue_ms=self._waits.queue_ms,
            load_ms=self._waits.load_ms,
            ttft_ms=self._record.ttft_ms,
        )
        payload = replace(ended, timing=timing)
        event = Event(self._lease.run_id, self._lease.attempt, self._record.next_seq, payload)
        self._record.add(event)
        fence = self._lease.attempt
        self._patiently(lambda: self._parts.recovery.finish(self._lease, self._record, event, fence=fence))

    def _leave(self) -> None:
        self._close()
        if self._record.num_unsaved:
            self._parts.store.save(self._lease, self._record.unsaved())
        self._parts.store.release(self._lease)
        self._parts.enqueue(self._lease.run_id, self._claim.checkpoint)

    def _close(self) -> None:
        """No output is numbered after this; what was numbered is in the record."""
        with self._numbering:
            self._is_closed = True
        self._parts.host.discard(self._sequence_id)
        while self._inbox:
            item = self._inbox.popleft()
            if isinstance(item, Event):
                self._add(item)

    def _patiently(self, action: Callable[[], _T]) -> _T:
        """Repeat a database action while the database does not answer: what was generated is not thrown away."""
        give_up_at = time.monotonic() + DATABASE_PATIENCE_S
        pause_s = 0.05
        while True:
            try:
                return action()
            except DatabaseUnavailableError:
                if self._is_leaving or time.monotonic() > give_up_at:
                    raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_PAUSE_S)


def request_for(
    claim: Claim, checkpoint: Encoder, *, settings: Settings, prompt_ids: tuple[int, ...], generated: tuple[int, ...]
) -> Request:
    """What the engine is to do: generate, or score the run's given text; from the tokens on that are saved."""
    sequence_id, text = claim.lease.sequence_id, claim.given_text
    if text is None:
        return Request(sequence_id, prompt_ids, settings, generated, user=claim.user, opening=claim.opening)
    given = checkpoint.encode(text, parse_special=settings.parse_special, continues=True)
    scored = Request.to_score(sequence_id, prompt_ids, settings, given=given, generated=generated)
    return replace(scored, user=claim.user)


def stop_for(exc: Exception) -> StopRecord:
    """The ending of a run that cannot go on because of `exc`."""
    reason = reason_for(exc)
    if isinstance(exc, DecodeLabError):
        return StopRecord(reason, message=exc.message)
    return StopRecord(reason, message="A fault of the worker ended this run; the worker's log says more under its id.")
