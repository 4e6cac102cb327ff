"""run(run_id): the one place where queue, engine and database meet.

The message of one arm of a comparison brings others: as many as there are free rows are claimed with it, so that they
share passes and the prompt's prefill. Each works in a thread of its own, beside those that take messages; its own
message, wherever it arrives, finds nothing to claim. What protects a run is the same for all: its claim and its lease.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from models.errors import BrokerUnavailableError, LeaseLostError, UnavailableError
from models.events import StopReason, StopRecord
from workers.attempt import Attempt
from workers.parts import Parts
from workers.probation import Probation, Turn
from workers.record import Claim, Record, Waiting
from workers.seats import Seats

logger = logging.getLogger(__name__)

BROKER_PATIENCE_S: Final = 20  # a later attempt waits this long for the stream of the earlier ones
PAUSE_S: Final = 0.1
SEAT_PATIENCE_S: Final = 0.5  # between two looks at a run that waits for a row here


class Generation:
    """Every run that this worker works on. All methods may be called from any thread."""

    def __init__(self, parts: Parts, *, num_rows: int) -> None:
        self._parts = parts
        self._seats = Seats(num_rows)
        self._active: dict[str, Attempt] = {}
        self._companions: set[threading.Thread] = set()  # of the arms that came with another's message
        self._probation = Probation()
        self._is_draining = threading.Event()
        self._is_handing_over = threading.Event()

    def run(self, run_id: str) -> None:
        """Claim the run and work on it to its end. Returns at once when there is nothing to claim."""
        with _left_to_others(run_id):
            waiting = self._parts.store.waiting(run_id)
            if waiting is None:
                return
            with self._probation.turn(is_suspect=waiting.is_suspect) as turn:
                # Every lease is renewed from now on: a busy machine takes its time to start a thread.
                held = [(claim, self._hold(claim)) for claim in self._claim(run_id, waiting)]
                for claim, place in held[1:]:
                    self._start(claim, place)
                for claim, place in held[:1]:
                    with place:
                        self._work_on(claim, turn)

    @property
    def num_companions(self) -> int:
        """Runs that no message keeps a thread for."""
        return len(self._companions)

    def join(self) -> None:
        """Wait until all of those have left."""
        for companion in list(self._companions):
            companion.join()

    def cancel(self, run_id: str) -> None:
        """Follow a cancel hint, if the row confirms it. Raises UnavailableError."""
        attempt = self._active.get(run_id)
        try:
            if attempt is None:
                self._parts.recovery.cancel_queued(run_id)
            else:
                attempt.look_for_cancel()
        except LeaseLostError:
            logger.info("run %s had ended or moved before its cancel arrived", run_id)

    def drain(self, grace_s: float) -> None:
        """Claim nothing more; let runs finish for `grace_s`, then hand the others over."""
        self._is_draining.set()
        give_up_at = time.monotonic() + grace_s
        while self._active and time.monotonic() < give_up_at:
            time.sleep(PAUSE_S)
        self._is_handing_over.set()
        for attempt in list(self._active.values()):
            attempt.hand_over()

    def _claim(self, run_id: str, waiting: Waiting) -> list[Claim]:
        """The run, and arms that go with it; each has a seat. Empty when there is nothing to claim, or no time."""
        num_wanted = self._seats.number if waiting.is_arm and not waiting.is_suspect else 1
        while not (num_seats := self._seats.take(num_wanted, within_s=SEAT_PATIENCE_S)):
            # Somebody else may have taken it along meanwhile.
            if self._is_draining.is_set() or self._parts.store.waiting(run_id) is None:
                return []
        claims: list[Claim] = []
        try:
            if not self._is_draining.is_set():
                claims = self._parts.store.claim_with_arms(run_id, num_seats - 1)
        finally:
            self._seats.give_back(num_seats - len(claims))
        return claims

    def _hold(self, claim: Claim) -> ExitStack:
        """The lease and the seat of a claimed run, until this is closed."""
        place = ExitStack()
        place.callback(self._seats.give_back, 1)
        place.enter_context(self._parts.leases.hold(claim.lease))
        return place

    def _start(self, claim: Claim, place: ExitStack) -> None:
        """Work on a claimed run in a thread of its own."""
        companion = threading.Thread(target=self._accompany, args=(claim, place), name="companion", daemon=True)
        self._companions.add(companion)
        try:
            companion.start()
        except RuntimeError:
            logger.exception("run %s is left with its lease: there is no thread for it", claim.lease.run_id)
            self._companions.discard(companion)
            place.close()

    def _accompany(self, claim: Claim, place: ExitStack) -> None:
        try:
            with _left_to_others(claim.lease.run_id), place:
                self._work_on(claim, Turn())
        except Exception:
            logger.exception("run %s is left with its lease", claim.lease.run_id)
        finally:
            self._companions.discard(threading.current_thread())

    def _work_on(self, claim: Claim, turn: Turn) -> None:
        stop = self._reason_not_to_start(claim)
        if stop is not None:
            self._parts.recovery.end(claim, stop)
            return
        attempt = Attempt(self._parts, claim, self._record(claim), turn)
        run_id = claim.lease.run_id
        self._active[run_id] = attempt
        try:
            if self._is_handing_over.is_set():
                attempt.hand_over()
            attempt.run()
        finally:
            if self._active.get(run_id) is attempt:
                del self._active[run_id]

    def _reason_not_to_start(self, claim: Claim) -> StopRecord | None:
        if claim.is_cancel_requested:
            return StopRecord(StopReason.CANCELLED)
        if claim.damage is not None:
            return StopRecord(StopReason.ERROR_INTERNAL, message=claim.damage)
        if claim.running_s >= self._parts.limits.time_limit_s:
            return StopRecord(StopReason.TIME_LIMIT)
        return None

    def _record(self, claim: Claim) -> Record:
        """What earlier attempts have told. The first attempt has none, so it needs no stream to begin."""
        if claim.lease.attempt == 1:
            return Record.of_saved(claim)
        give_up_at = time.monotonic() + BROKER_PATIENCE_S
        while True:
            try:
                return self._parts.recovery.record(claim, fence=claim.lease.attempt)
            except BrokerUnavailableError:
                if time.monotonic() > give_up_at or self._is_draining.is_set():
                    self._parts.store.release(claim.lease)
                    raise
                time.sleep(PAUSE_S)


@contextmanager
def _left_to_others(run_id: str) -> Iterator[None]:
    """Where the run has another owner, or cannot be worked on now: somebody else goes on."""
    try:
        yield
    except LeaseLostError as exc:
        logger.warning("%s", exc.message)
    except UnavailableError as exc:
        logger.warning("run %s is left to a later attempt: %s", run_id, exc.message)
