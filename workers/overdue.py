"""What a worker that looks around finds overdue: expired leases, lost messages, endings that nobody was told.

Every change is one conditional UPDATE, so that several workers may look at the same time.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson
from sqlalchemy import Text, cast, func, select, update

from models.db.base import database_now
from models.db.ledger import DAMAGE
from models.db.runs import Run, productive_attempt
from models.db.session import Database
from models.events import Ended, Event, Status

logger = logging.getLogger(__name__)

LIMIT: Final = 200  # rows of one kind that are looked at in one turn


@dataclass(frozen=True, slots=True)
class ExpiredLease:
    """A run whose worker has not renewed its lease in time."""

    run_id: str
    checkpoint: str
    attempt: int
    is_cancel_requested: bool
    productive_attempt: int  # the last one that brought the run on; 0 where none did


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that has been waiting for some time."""

    run_id: str
    checkpoint: str


class Overdue:
    """Queries over `runs` by state and age, in the database's clock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def expired_leases(self) -> list[ExpiredLease]:
        with self._database.read() as session:
            rows = session.execute(
                select(Run.id, Run.checkpoint, Run.attempt, Run.cancel_requested, productive_attempt())
                .where(Run.status == Status.RUNNING, Run.lease_until < database_now())
                .order_by(Run.id)
                .limit(LIMIT)
            )
            return [ExpiredLease(*row) for row in rows]

    def requeue(self, expired: ExpiredLease) -> bool:
        """Back to `queued`; False when another sweeper or the owner itself was quicker."""
        with self._database.write() as session:
            requeued = session.scalar(
                update(Run)
                .where(
                    Run.id == expired.run_id,
                    Run.status == Status.RUNNING,
                    Run.attempt == expired.attempt,
                    Run.lease_until < database_now(),
                )
                .values(status=Status.QUEUED, lease_owner=None, lease_until=None, enqueued_at=database_now())
                .returning(Run.id)
            )
            return requeued is not None

    def queued_since(self, age_s: float) -> list[QueuedRun]:
        """Queued runs whose message was sent, as far as the row knows, more than `age_s` ago."""
        with self._database.read() as session:
            rows = session.execute(
                select(Run.id, Run.checkpoint)
                .where(
                    Run.status == Status.QUEUED,
                    func.coalesce(Run.enqueued_at, Run.created_at) < database_now(plus_s=-age_s),
                )
                .order_by(Run.id)
                .limit(LIMIT)
            )
            return [QueuedRun(*row) for row in rows]

    def mark_enqueued(self, run_id: str) -> None:
        with self._database.write() as session:
            session.execute(update(Run).where(Run.id == run_id).values(enqueued_at=database_now()))

    def cancelled_in_queue(self) -> list[str]:
        with self._database.read() as session:
            statement = select(Run.id).where(Run.status == Status.QUEUED, Run.cancel_requested.is_(True)).limit(LIMIT)
            return list(session.scalars(statement))

    def unpublished_endings(self, age_s: float) -> list[Event]:
        """The `ended` events of runs that ended more than `age_s` ago and whose readers were not told.

        An ending that cannot be read is passed over from then on: there is nothing to tell.
        """
        with self._database.read() as session:
            rows = session.execute(
                # As text: one damaged row must not keep the others' readers waiting.
                select(Run.id, cast(Run.milestones, Text))
                .where(
                    Run.ended_published.is_(False),
                    Run.ended_at < database_now(plus_s=-age_s),
                )
                .limit(LIMIT)
            ).all()
        endings = {run_id: _ending(milestones) for run_id, milestones in rows}
        damaged = [run_id for run_id, ending in endings.items() if ending is None]
        if damaged:
            logger.error("the saved endings of these runs cannot be read: %s", ", ".join(damaged))
            self._leave_alone(damaged)
        return [ending for ending in endings.values() if ending is not None]

    def _leave_alone(self, run_ids: Sequence[str]) -> None:
        with self._database.write() as session:
            session.execute(update(Run).where(Run.id.in_(run_ids)).values(ended_published=True))


def _ending(milestones: str) -> Event | None:
    """The last of a run's saved milestones; None where it cannot be read or is no ending."""
    try:
        event = Event.decode(orjson.dumps(orjson.loads(milestones)[-1]))
    except DAMAGE:
        return None
    return event if isinstance(event.payload, Ended) else None
