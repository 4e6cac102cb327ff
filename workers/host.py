"""EngineHost: the one thread that owns the device and steps the engine.

Everybody else sends it commands and gets outputs back through a callback. What concerns one run (a refused prompt, NaN
in its logits) comes back to that run alone. An exception out of the step itself, or a step that does not return, ends
the whole worker: a worker that is alive but idle would be worse than one that is replaced.
"""

import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

from models.errors import UnavailableError
from models.events import Ended, StopReason
from workers.engine.engine import Output, Request
from workers.engine.replay import Pieces
from workers.engine.runner import is_device_fault

logger = logging.getLogger(__name__)

Listener = Callable[[Output], None]
_Result = TypeVar("_Result")
LOOK_EVERY_S: Final = 1.0
IDLE_EVERY_S: Final = 5.0


class SteppingEngine(Protocol):
    """What the host needs of an engine; `workers.engine.engine.Engine` is the real one."""

    def add(self, request: Request) -> None: ...
    def cancel(self, sequence_id: str, reason: StopReason = ...) -> None: ...
    def step(self) -> Sequence[Output]: ...
    @property
    def has_work(self) -> bool: ...


class EngineHost:
    """Runs an engine in its own thread. `on_failure` must end the process."""

    def __init__(
        self,
        engine: SteppingEngine,
        *,
        watchdog_s: float,
        on_failure: Callable[[str], None],
        at_start: Callable[[], None] | None = None,
        after_outputs: Callable[[], None] | None = None,
        on_idle: Callable[[], None] | None = None,
    ) -> None:
        """All three are called on the device thread: `at_start` before anything else, `after_outputs` whenever outputs
        have been handed to their listeners, `on_idle` when there is nothing left to do, but not again within
        IDLE_EVERY_S."""
        self._engine = engine
        self._watchdog_s = watchdog_s
        self._on_failure = on_failure
        self._at_start = at_start
        self._after_outputs = after_outputs
        self._on_idle = on_idle
        self._idle_at = -math.inf
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._listeners: dict[str, Listener] = {}
        self._computations: deque[tuple[Pieces[Any], Future[Any]]] = deque()
        self._busy_since: float | None = None
        self._is_stopping = threading.Event()
        self._device = threading.Thread(target=self._work, name="device", daemon=True)
        self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        self._device.start()
        self._watchdog.start()

    def stop(self, timeout_s: float = 5) -> None:
        """Stop after the current step. Sequences that are still active stay without an ending."""
        self._is_stopping.set()
        self._commands.put(_nothing)
        self._device.join(timeout_s)
        self._watchdog.join(timeout_s)

    @property
    def num_active(self) -> int:
        return len(self._listeners)

    def submit(self, request: Request, on_output: Listener) -> None:
        """Add a sequence; `on_output` gets each of its outputs, on the device thread, and must return at once.

        Waits for at most the step in progress. Raises what the engine refuses with: PromptError, SettingError.
        """
        if self._is_stopping.is_set():
            raise UnavailableError("The worker is stopping and takes no more runs.")
        answer: Future[None] = Future()
        self._commands.put(lambda: self._add(request, on_output, answer))
        answer.result()

    def compute(self, pieces: Pieces[_Result]) -> "Future[_Result]":
        """Carry out `pieces` on the device thread, one before each step, so that runs go on meanwhile.

        The future has what they return or raise. One that is cancelled is dropped after the piece in progress; one of
        a host that stops never comes, so wait for it with a time-out.
        """
        answer: Future[_Result] = Future()
        self._commands.put(lambda: self._computations.append((pieces, answer)))
        return answer

    def cancel(self, sequence_id: str, reason: StopReason = StopReason.CANCELLED) -> None:
        """End a sequence before its next step, with an `Ended` that says why; nothing happens when it has ended."""
        self._commands.put(lambda: self._cancel(sequence_id, reason))

    def discard(self, sequence_id: str) -> None:
        """Like `cancel`, but nobody hears of it any more."""
        self._commands.put(lambda: self._discard(sequence_id))

    def _add(self, request: Request, on_output: Listener, answer: "Future[None]") -> None:
        try:
            self._engine.add(request)
        except Exception as exc:  # noqa: BLE001 -- it is the submitter's: raised again in its thread
            answer.set_exception(exc)
            return
        self._listeners[request.sequence_id] = on_output
        answer.set_result(None)

    def _cancel(self, sequence_id: str, reason: StopReason) -> None:
        if sequence_id in self._listeners:
            self._engine.cancel(sequence_id, reason)

    def _discard(self, sequence_id: str) -> None:
        if self._listeners.pop(sequence_id, None) is not None:
            self._engine.cancel(sequence_id, StopReason.CANCELLED)

    def _work(self) -> None:
        try:
            if self._at_start is not None:
                self._at_start()
            while not self._is_stopping.is_set():
                self._obey()
                if self._computations:
                    self._advance()
                if self._engine.has_work:
                    self._deliver(self._engine.step())
        except Exception:
            logger.critical("the device thread failed", exc_info=True)
            self._on_failure("the device thread failed")

    def _obey(self) -> None:
        """Carry out every waiting command; without work, wait for one."""
        if not self._engine.has_work and not self._computations and self._commands.empty():
            self._busy_since = None
            self._rest()
            command = self._commands.get()
            self._busy_since = time.monotonic()
            command()
        self._busy_since = time.monotonic()
        while not self._commands.empty():
            self._commands.get()()

    def _rest(self) -> None:
        now_s = time.monotonic()
        if self._on_idle is not None and now_s - self._idle_at >= IDLE_EVERY_S:
            self._idle_at = now_s
            self._on_idle()

    def _advance(self) -> None:
        """One piece of the computation whose turn it is."""
        pieces, answer = self._computations.popleft()
        if answer.cancelled():
            pieces.close()
            return
        try:
            next(pieces)
        except StopIteration as stop:
            _give(answer, stop.value)
        except Exception as exc:
            if is_device_fault(exc):
                raise
            _give(answer, exc)
        else:
            self._computations.append((pieces, answer))

    def _deliver(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            listener = self._listeners.get(output.sequence_id)
            if isinstance(output.payload, Ended):
                self._listeners.pop(output.sequence_id, None)
            if listener is not None:
                listener(output)
        if outputs and self._after_outputs is not None:
            self._after_outputs()

    def _watch(self) -> None:
        while not self._is_stopping.wait(min(LOOK_EVERY_S, self._watchdog_s / 4)):
            since = self._busy_since
            if since is not None and time.monotonic() - since > self._watchdog_s:
                self._on_failure(f"no step of the device has ended for {self._watchdog_s:g} s")
                return


def _give(answer: "Future[Any]", result: Any) -> None:
    """The end of a computation, for whoever still waits for it."""
    if not answer.set_running_or_notify_cancel():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)


def _nothing() -> None:
    """Wakes the device thread."""
