"""Puts right what died half-way: expired leases, lost messages, endings that nobody was told.

Every worker has one, and it is harmless to have several: each change is a conditional UPDATE, and whoever changes no
row leaves the run alone.
"""

import base64
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import orjson
import redis

from models.errors import DatabaseUnavailableError, UnavailableError
from models.events import Event, StopReason, StopRecord
from models.names import queue_for
from workers.broker import translated
from workers.overdue import ExpiredLease, QueuedRun

logger = logging.getLogger(__name__)

TOLD_AFTER_S: Final = 2  # the worker that ended a run has this long to tell its readers itself
_T = TypeVar("_T")
FRUITLESS_ATTEMPTS: Final = 2  # in a row, before a run is given up
MOST_ATTEMPTS: Final = 10  # of a run that is brought on each time
_LOST: Final = (
    "This run was given up after {attempts} attempts, the last of which died with its worker; the text so far is kept."
)


class _Overdue(Protocol):
    def expired_leases(self) -> list[ExpiredLease]: ...
    def requeue(self, expired: ExpiredLease) -> bool: ...
    def queued_since(self, age_s: float) -> list[QueuedRun]: ...
    def mark_enqueued(self, run_id: str) -> None: ...
    def cancelled_in_queue(self) -> list[str]: ...
    def unpublished_endings(self, age_s: float) -> list[Event]: ...


class _Recovery(Protocol):
    def cancel_queued(self, run_id: str) -> bool: ...
    def end_expired(self, run_id: str, stop: StopRecord) -> bool: ...
    def tell(self, event: Event, *, fence: int) -> None: ...


class WaitingMessages:
    """The run ids whose messages are on a checkpoint's queue."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def __call__(self, checkpoint: str) -> set[str]:
        """Raises BrokerUnavailableError."""
        with translated():
            messages: Sequence[bytes] = self._client.lrange(queue_for(checkpoint), 0, -1)  # type: ignore[assignment]
        found = [_run_id(message) for message in messages]
        if num_foreign := found.count(None):
            logger.warning("%d messages on the queue of %s cannot be read", num_foreign, checkpoint)
        return {run_id for run_id in found if run_id is not None}


def _run_id(message: bytes) -> str | None:
    """The run id in a message as kombu writes it, a JSON envelope around the task's base64 arguments; None in others.

    A damaged message, or one of another program, must not keep the lost runs waiting.
    """
    try:
        args, _kwargs, _embed = orjson.loads(base64.b64decode(orjson.loads(message)["body"]))
        return str(args[0])
    except (ValueError, LookupError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things may take before they count as lost."""

    max_attempts: int  # of a run that its last two did not bring on
    requeue_after_s: float
    lease_rest_s: float


class Sweeper:
    """`sweep` is one turn; `Patience.lease_rest_s` is how long leases are left alone after the database was away.

    While nobody could renew, leases ran out that have a living owner; it gets the time to renew them.
    """

    def __init__(
        self,
        overdue: _Overdue,
        recovery: _Recovery,
        *,
        waiting: Callable[[str], set[str]],
        enqueue: Callable[[str, str], None],
        patience: Patience,
    ) -> None:
        """`enqueue(run_id, checkpoint)` sends a message; `waiting(checkpoint)` names the runs that have one."""
        self._overdue = overdue
        self._recovery = recovery
        self._waiting = waiting
        self._enqueue = enqueue
        self._patience = patience
        self._leases_rest_until = 0.0

    def sweep(self) -> None:
        """Raises UnavailableError when a part does not answer; the next turn begins anew."""
        try:
            self._each(self._end_cancelled, self._overdue.cancelled_in_queue())
            if time.monotonic() >= self._leases_rest_until:
                self._each(self._recover, self._overdue.expired_leases())
            self._each(self._tell, self._overdue.unpublished_endings(TOLD_AFTER_S))
            self._send_lost_messages()
        except DatabaseUnavailableError:
            self._leases_rest_until = time.monotonic() + self._patience.lease_rest_s
            raise

    def _each(self, action: Callable[[_T], None], items: Sequence[_T]) -> None:
        """One run that cannot be put right must not keep the others waiting."""
        for item in items:
            try:
                action(item)
            except UnavailableError:
                raise
            except Exception:
                logger.exception("could not put right: %s", item)

    def _end_cancelled(self, run_id: str) -> None:
        self._recovery.cancel_queued(run_id)

    def _recover(self, expired: ExpiredLease) -> None:
        if expired.is_cancel_requested:
            self._recovery.end_expired(expired.run_id, StopRecord(StopReason.CANCELLED))
        elif self._is_hopeless(expired):
            message = _LOST.format(attempts=expired.attempt)
            self._recovery.end_expired(expired.run_id, StopRecord(StopReason.WORKER_LOST, message=message))
        elif self._overdue.requeue(expired):
            logger.warning("run %s goes back to the queue: attempt %d was lost", expired.run_id, expired.attempt)
            self._enqueue(expired.run_id, expired.checkpoint)

    def _is_hopeless(self, expired: ExpiredLease) -> bool:
        """A run that comes on is not the one that kills its workers, however often it dies with them."""
        num_fruitless = expired.attempt - expired.productive_attempt
        is_stuck = expired.attempt >= self._patience.max_attempts and num_fruitless >= FRUITLESS_ATTEMPTS
        return is_stuck or expired.attempt >= MOST_ATTEMPTS

    def _tell(self, event: Event) -> None:
        # The writer itself closed the stream one above its attempt; only that fence passes a second time.
        self._recovery.tell(event, fence=event.attempt + 1)

    def _send_lost_messages(self) -> None:
        overdue = self._overdue.queued_since(self._patience.requeue_after_s)
        for checkpoint in sorted({run.checkpoint for run in overdue}):
            waiting = self._waiting(checkpoint)
            lost = [run for run in overdue if run.checkpoint == checkpoint and run.run_id not in waiting]
            self._each(self._send_again, lost)

    def _send_again(self, run: QueuedRun) -> None:
        logger.warning("run %s is queued but has no message; sending it again", run.run_id)
        self._enqueue(run.run_id, run.checkpoint)
        self._overdue.mark_enqueued(run.run_id)
