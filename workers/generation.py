"""run(run_id): the one place where queue, engine and database meet."""

import logging
import threading
import time
from typing import Final

from models.errors import BrokerUnavailableError, LeaseLostError, UnavailableError
from models.events import StopReason, StopRecord
from workers.attempt import Attempt
from workers.parts import Parts
from workers.probation import Probation, Turn
from workers.record import Claim, Record

logger = logging.getLogger(__name__)

BROKER_PATIENCE_S: Final = 20  # a later attempt waits this long for the stream of the earlier ones
PAUSE_S: Final = 0.1


class Generation:
    """Every run that this worker works on. All methods may be called from any thread."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._active: dict[str, Attempt] = {}
        self._probation = Probation()
        self._is_draining = threading.Event()
        self._is_handing_over = threading.Event()

    def run(self, run_id: str) -> None:
        """Claim the run and work on it to its end. Returns at once when there is nothing to claim."""
        try:
            with self._probation.turn(is_suspect=self._parts.store.is_suspect(run_id)) as turn:
                claim = None if self._is_draining.is_set() else self._parts.store.claim(run_id)
                if claim is not None:
                    with self._parts.leases.hold(claim.lease):
                        self._work_on(claim, turn)
        except LeaseLostError as exc:
            logger.warning("%s", exc.message)
        except UnavailableError as exc:
            logger.warning("run %s is left to a later attempt: %s", run_id, exc.message)

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
