"""What a worker that looks around finds overdue: expired leases, lost messages, endings that nobody was told.

Every change is one conditional UPDATE, so that several workers may look at the same time.
"""

from dataclasses import dataclass
from typing import Final

import orjson
from sqlalchemy import func, select, update

from models.db.base import database_now
from models.db.runs import Run
from models.db.session import Database
from models.events import Event, Status

LIMIT: Final = 200  # rows of one kind that are looked at in one turn


@dataclass(frozen=True, slots=True)
class ExpiredLease:
    """A run whose worker has not renewed its lease in time."""

    run_id: str
    checkpoint: str
    attempt: int
    is_cancel_requested: bool


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
                select(Run.id, Run.checkpoint, Run.attempt, Run.cancel_requested)
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
        """The `ended` events of runs that ended more than `age_s` ago and whose readers were not told."""
        with self._database.read() as session:
            rows = session.execute(
                select(Run.milestones)
                .where(
                    Run.ended_published.is_(False),
                    Run.ended_at < database_now(plus_s=-age_s),
                )
                .limit(LIMIT)
            )
            return [Event.decode(orjson.dumps(milestones[-1])) for (milestones,) in rows]
