"""All SQL of the worker. Each function is one short transaction; every write is conditional on the lease.

The conditions are what keeps two workers apart: a claim needs `queued`, every later write needs `running` with the
writer's attempt and owner in the row. A write that changes no row raises LeaseLostError and has written nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

import orjson
from sqlalchemy import Text, cast, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session, aliased, defer
from sqlalchemy.sql.elements import ColumnElement

from models.db.base import database_now
from models.db.experiments import Experiment
from models.db.ledger import token_row
from models.db.runs import Run, Token, productive_attempt
from models.db.session import Database
from models.errors import LeaseLostError
from models.events import Event, Status
from workers.record import Batch, Claim, Lease, Summary, Waiting
from workers.run_columns import ending, progress
from workers.saved import read_history

_TERMINAL: Final = [s.value for s in Status if s.is_terminal]


def check_tables(database: Database) -> None:
    """Raise DatabaseUnavailableError unless the database answers and has its tables."""
    with database.read() as session:
        session.execute(select(Run.id).limit(1))


class Store:
    """The worker's view of `runs` and `tokens`."""

    def __init__(self, database: Database, owner: str, *, lease_s: float, facts: Mapping[str, Any]) -> None:
        """`facts` are columns of `runs` that say where an attempt ran: checkpoint revision, weights digest, capsule."""
        self._database = database
        self._owner = owner
        # Another name, so that an attempt of this same worker that woke up late cannot write into the ending.
        self._undertaker = f"{owner}/end"
        self._lease_s = lease_s
        self._facts = facts

    # Claims

    def waiting(self, run_id: str) -> Waiting | None:
        """The run as its message finds it; None for one that is not queued: a duplicate message."""
        facts = (Run.attempt > productive_attempt(), Run.experiment_id.is_not(None))
        with self._database.read() as session:
            row = session.execute(select(*facts).where(Run.id == run_id, Run.status == Status.QUEUED)).first()
            return None if row is None else Waiting(is_suspect=bool(row[0]), is_arm=bool(row[1]))

    def claim(self, run_id: str) -> Claim | None:
        """Take a queued run as its next attempt. None when there is nothing to take: a duplicate message."""
        return next(iter(self.claim_with_arms(run_id, 0)), None)

    def claim_with_arms(self, run_id: str, num_others: int) -> list[Claim]:
        """Take a queued run as its next attempt, and with it the next runs of its comparison, at most `num_others`.

        Each is taken as by its own message, which then finds nothing to take. Not those that were attempted before:
        they may be what their worker died of. Empty when there is nothing to take.
        """
        with self._database.write() as session:
            if num_others:
                _wait_for_arms(session, run_id)
            claims = self._claim_queued(session, [run_id])
            if claims and num_others:
                claims += self._claim_queued(session, _next_arms(session, run_id, num_others))
            return claims

    def _claim_queued(self, session: Session, run_ids: Sequence[str]) -> list[Claim]:
        return self._take(
            session,
            run_ids,
            self._owner,
            Run.status == Status.QUEUED,
            attempt=Run.attempt + 1,
            started_at=func.coalesce(Run.started_at, database_now()),
            **self._facts,
        )

    def adopt_cancelled(self, run_id: str) -> Claim | None:
        """Take a queued run whose cancel was requested, only to end it: no attempt is counted."""
        return self._adopt(run_id, Run.status == Status.QUEUED, Run.cancel_requested.is_(True))

    def adopt_expired(self, run_id: str) -> Claim | None:
        """Take a run whose lease has run out, only to end it: no attempt is counted."""
        return self._adopt(run_id, Run.status == Status.RUNNING, Run.lease_until < database_now())

    def _adopt(self, run_id: str, *conditions: ColumnElement[bool]) -> Claim | None:
        with self._database.write() as session:
            return next(iter(self._take(session, [run_id], self._undertaker, *conditions)), None)

    def _take(
        self,
        session: Session,
        run_ids: Sequence[str],
        owner: str,
        *conditions: ColumnElement[bool],
        **changes: Any,
    ) -> list[Claim]:
        taken = session.scalars(
            update(Run)
            .where(Run.id.in_(run_ids), *conditions)
            .values(
                status=Status.RUNNING,
                lease_owner=owner,
                lease_until=database_now(plus_s=self._lease_s),
                **changes,
            )
            .returning(Run.id)
            .execution_options(synchronize_session=False)
        )
        return [self._read_claim(session, run_id, owner) for run_id in sorted(taken)]

    def _read_claim(self, session: Session, run_id: str, owner: str) -> Claim:
        # As text: a damaged column is the claim's to tell, not this query's.
        columns = (Run, cast(Run.milestones, Text), database_now().label("now"))
        query = select(*columns).options(defer(Run.milestones)).where(Run.id == run_id)
        run, milestones, now = session.execute(query).one()
        tokens = session.scalars(select(Token).where(Token.run_id == run_id).order_by(Token.position))
        saved = read_history(milestones, tokens)
        started_at = run.started_at or now
        return Claim(
            lease=Lease(run_id, run.attempt, owner),
            checkpoint=run.checkpoint,
            prompt=run.prompt,
            settings=run.settings,
            user=run.owner or run.experiment_id or run.id,
            is_cancel_requested=run.cancel_requested,
            queued_s=_seconds(started_at - run.created_at),
            running_s=_seconds(now - started_at),
            ttft_ms=run.ttft_ms,
            milestones=saved.milestones,
            tokens=saved.tokens,
            given_text=run.given_text,
            messages=run.messages,
            prompt_ids=None if run.prompt_token_ids is None else tuple(run.prompt_token_ids),
            opening=tuple(run.opening_ids or ()),
            damage=saved.damage,
        )

    # Writes under a lease

    def save(self, lease: Lease, batch: Batch) -> bool:
        """Add a batch to the run; True when its cancel was requested. Repeating it is harmless.

        Raises LeaseLostError, DatabaseUnavailableError.
        """
        with self._database.write() as session:
            cancel_requested = self._update(session, lease, **progress(batch))
            _insert_tokens(session, batch.tokens)
        return cancel_requested

    def finish(self, lease: Lease, batch: Batch, *, text: str, summary: Summary) -> None:
        """End the run: the batch, whose last milestone is its `Ended`, and every column that follows from it.

        Repeating it after an unknown outcome is harmless. Raises LeaseLostError, DatabaseUnavailableError.
        """
        changes = {**progress(batch), **ending(batch), **asdict(summary), "text": text}
        with self._database.write() as session:
            try:
                self._update(session, lease, **changes)
            except LeaseLostError:
                if not _is_written(session, lease, batch):
                    raise
                return
            _insert_tokens(session, batch.tokens)

    def mend(self, claim: Claim) -> None:
        """Take what could not be read out of a damaged run, so that its ending follows on what is whole.

        Raises LeaseLostError, DatabaseUnavailableError.
        """
        num_tokens = len(claim.tokens)
        milestones = [orjson.loads(event.encode()) for event in claim.milestones]
        is_beyond = or_(Token.position < 0, Token.position >= num_tokens)
        with self._database.write() as session:
            self._update(session, claim.lease, milestones=milestones, num_tokens=num_tokens)
            session.execute(delete(Token).where(Token.run_id == claim.lease.run_id, is_beyond))

    def is_cancel_requested(self, lease: Lease) -> bool:
        """The truth about a cancel. Raises LeaseLostError when the run has another owner."""
        with self._database.read() as session:
            answer = session.scalar(select(Run.cancel_requested).where(*_held_by(lease)))
        if answer is None:
            raise _lost(lease)
        return answer

    def release(self, lease: Lease) -> None:
        """Hand the run back to the queue. Raises LeaseLostError."""
        with self._database.write() as session:
            self._update(
                session, lease, status=Status.QUEUED, lease_owner=None, lease_until=None, enqueued_at=database_now()
            )

    def renew(self, leases: Sequence[Lease]) -> None:
        """Put the end of each lease that is still held `lease_s` ahead."""
        with self._database.write() as session:
            for lease in leases:
                session.execute(
                    update(Run).where(*_held_by(lease)).values(lease_until=database_now(plus_s=self._lease_s))
                )

    def give_up(self) -> None:
        """Let every lease of this worker run out now, so that others need not wait for it."""
        with self._database.write() as session:
            session.execute(
                update(Run)
                .where(Run.status == Status.RUNNING, Run.lease_owner == self._owner)
                .values(lease_until=database_now())
            )

    def mark_ended_published(self, run_id: str) -> None:
        with self._database.write() as session:
            session.execute(update(Run).where(Run.id == run_id).values(ended_published=True))

    def _update(self, session: Session, lease: Lease, **changes: Any) -> bool:
        answer = session.execute(
            update(Run)
            .where(*_held_by(lease))
            .values(**changes)
            .returning(Run.cancel_requested)
            .execution_options(synchronize_session=False)
        ).first()
        if answer is None:
            raise _lost(lease)
        return bool(answer.cancel_requested)


def _wait_for_arms(session: Session, run_id: str) -> None:
    """Let workers that claim arms of the same comparison do so one after the other, or they would part them."""
    own = select(Run.experiment_id).where(Run.id == run_id).scalar_subquery()
    session.execute(select(Experiment.id).where(Experiment.id == own).with_for_update(key_share=True))


def _next_arms(session: Session, run_id: str, number: int) -> list[str]:
    """Queued runs of the same comparison and checkpoint that nobody has attempted, in the order of their arms."""
    own = aliased(Run)
    query = (
        select(Run.id)
        .join(own, (own.experiment_id == Run.experiment_id) & (own.checkpoint == Run.checkpoint))
        .where(own.id == run_id, Run.status == Status.QUEUED, Run.attempt == 0, Run.cancel_requested.is_(False))
        .order_by(Run.id)
        .limit(number)
        # A row that somebody else is changing at this moment is not waited for.
        .with_for_update(of=Run, skip_locked=True)
    )
    return list(session.scalars(query))


def _held_by(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return (
        Run.id == lease.run_id,
        Run.status == Status.RUNNING,
        Run.attempt == lease.attempt,
        Run.lease_owner == lease.owner,
    )


def _lost(lease: Lease) -> LeaseLostError:
    return LeaseLostError(f"Attempt {lease.attempt} no longer owns run {lease.run_id}; it writes nothing more.")


def _is_written(session: Session, lease: Lease, batch: Batch) -> bool:
    """Whether an earlier try of the same `finish` was committed although its answer was lost."""
    saved = session.execute(select(Run.status, Run.milestones).where(Run.id == lease.run_id)).first()
    if saved is None or saved.status not in _TERMINAL or batch.milestones is None:
        return False
    return bool(saved.milestones) and saved.milestones[-1] == orjson.loads(batch.milestones[-1].encode())


def _insert_tokens(session: Session, events: Sequence[Event]) -> None:
    if not events:
        return
    dialect = sqlite if session.get_bind().dialect.name == "sqlite" else postgresql
    statement = dialect.insert(Token).on_conflict_do_nothing(index_elements=["run_id", "position"])
    session.execute(statement, [token_row(event) for event in events])


def _seconds(duration: timedelta) -> float:
    return max(0.0, duration.total_seconds())
