"""Runs that go on from what another worker left, and runs that end without an engine."""

import logging
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

from models.errors import DatabaseUnavailableError
from models.events import Event, StopReason, StopRecord
from workers.publisher import Publisher
from workers.record import Claim, Lease, Record
from workers.store import Store

logger = logging.getLogger(__name__)

PUBLISH_WAIT_S: Final = 2  # an `ended` event that takes longer is left to the sweeper


class Recovery:
    """Composes the store and the publisher where both must agree on a run's past."""

    def __init__(self, store: Store, publisher: Publisher) -> None:
        self._store = store
        self._publisher = publisher

    def record(self, claim: Claim, *, fence: int) -> Record:
        """Everything that the run has told: the saved events, then those that only the stream has, saved now.

        A token that was shown is never taken back, so the stream is read before anything is added; writers below
        `fence` are shut out first. What the stream does not have is told there.

        Raises LeaseLostError, BrokerUnavailableError, DatabaseUnavailableError.
        """
        if claim.damage is not None:
            logger.error("run %s: %s", claim.lease.run_id, claim.damage)
            self._store.mend(claim)
        record = Record.of_saved(claim)
        found = self._publisher.take_over(claim.lease.run_id, fence=fence, after_seq=record.next_seq - 1)
        record.add_all(found.events)
        if record.num_unsaved:
            self._store.save(claim.lease, record.unsaved())
            record.mark_saved()
        told = (*claim.milestones, *claim.tokens, *found.events)
        for event in sorted(told, key=lambda event: event.seq):
            if event.seq > found.newest_seq:
                self._publisher.publish(event, fence=fence)
        return record

    def end(self, claim: Claim, stop: StopRecord) -> None:
        """End a run that no engine works on, with its partial text and every token that was shown."""
        fence = claim.lease.attempt + 1
        record = self.record(claim, fence=fence)
        ended = record.ended_without_engine(stop)
        event = Event(claim.lease.run_id, claim.lease.attempt, record.next_seq, ended)
        record.add(event)
        self.finish(claim.lease, record, event, fence=fence)

    def finish(self, lease: Lease, record: Record, event: Event, *, fence: int) -> None:
        """Commit the ending that `record` closes with; only then tell it, and remember that it was told."""
        self._store.finish(lease, record.unsaved(), text=record.text, summary=record.summary)
        record.mark_saved()
        self.tell(event, fence=fence)

    def tell(self, event: Event, *, fence: int) -> None:
        """Publish a committed `ended` event. What cannot be told now is told by a sweeper."""
        try:
            was_sent = self._publisher.publish(event, fence=fence).result(PUBLISH_WAIT_S)
            if was_sent:
                self._store.mark_ended_published(event.run_id)
        except (FutureTimeoutError, DatabaseUnavailableError):
            logger.warning("run %s ended; its readers will be told by a sweeper", event.run_id)

    def cancel_queued(self, run_id: str) -> bool:
        """End a run that is still waiting and whose cancel was requested. False when there is no such run."""
        return self._adopt_and_end(self._store.adopt_cancelled, run_id, StopRecord(StopReason.CANCELLED))

    def end_expired(self, run_id: str, stop: StopRecord) -> bool:
        """End a run that its worker has lost. False when somebody else was quicker."""
        return self._adopt_and_end(self._store.adopt_expired, run_id, stop)

    def _adopt_and_end(self, adopt: Callable[[str], Claim | None], run_id: str, stop: StopRecord) -> bool:
        claim = adopt(run_id)
        if claim is None:
            return False
        self.end(claim, stop)
        return True
