"""What the whole stack is doing: who is alive, what waits, what runs, what failed, and how long things take.

Each part is asked by itself, so that what is away is said and the rest is shown all the same.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session, load_only

from app.serving import Serving
from models.db.base import database_now, unescape_start
from models.db.runs import Run
from models.db.session import Database
from models.errors import DecodeLabError, UnavailableError
from models.events import Status, StopReason
from models.presence import WorkerPresence

NUM_ACTIVE: Final = 50
NUM_FAILURES: Final = 20
NUM_MEASURED: Final = 500
FAILURES_SINCE: Final = timedelta(days=7)
QUANTILES: Final = (0.5, 0.95, 0.99)
RATE: Final = "tokens_per_s"
_NUM_HEAD_CHARACTERS: Final = 80
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class QueueLine:
    """One checkpoint's runs that have not ended."""

    checkpoint: str
    num_waiting: int
    num_running: int
    oldest_waiting_s: float | None


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run that waits or runs."""

    id: str
    checkpoint: str
    prompt_start: str
    status: Status
    attempt: int
    num_tokens: int  # saved so far
    age_s: float  # since it was submitted


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that ended with an error."""

    id: str
    prompt_start: str
    ended_at: datetime
    reason: StopReason
    message: str


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of one figure over a checkpoint's runs among the latest of all."""

    checkpoint: str
    figure: str  # "queue_ms", "prefill_ms", "ttft_ms", "itl_ms", "tokens_per_s"
    num_runs: int
    values: tuple[float, ...]  # at QUANTILES


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at about one moment. `problems`: a sentence for each part that gave no answer."""

    taken_at: datetime | None = None  # database clock, UTC; None while the database is away
    workers: Sequence[WorkerPresence] = ()
    queues: Sequence[QueueLine] = ()
    active: Sequence[ActiveRun] = ()
    failures: Sequence[FailedRun] = ()
    spreads: Sequence[Spread] = ()
    problems: list[str] = field(default_factory=list)


class Overview:
    """Asks Redis for the workers and the database for the runs."""

    def __init__(self, database: Database, serving: Serving) -> None:
        self._database = database
        self._serving = serving

    def take(self) -> Snapshot:
        """Never raises for a part that is away: it says so in `problems`."""
        problems: list[str] = []
        workers = _answer(self._serving.workers, problems) or []
        runs = _answer(self._runs, problems) or Snapshot()
        return Snapshot(
            taken_at=runs.taken_at,
            workers=workers,
            queues=runs.queues,
            active=runs.active,
            failures=runs.failures,
            spreads=runs.spreads,
            problems=problems,
        )

    def _runs(self) -> Snapshot:
        with self._database.read() as session:
            now = session.scalar(select(database_now()))
            if now is None:
                raise UnavailableError("The database tells no time.")
            return Snapshot(
                now, (), _queues(session, now), _active(session, now), _failures(session, now), _spreads(session)
            )


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest of `values` that at least a part `q` of them does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def _answer(ask: Callable[[], _Value], problems: list[str]) -> _Value | None:
    try:
        return ask()
    except DecodeLabError as exc:
        problems.append(exc.message)
        return None


def _queues(session: Session, now: datetime) -> list[QueueLine]:
    is_active = Run.status.in_((Status.QUEUED.value, Status.RUNNING.value))
    query = (
        select(Run.checkpoint, Run.status, func.count(), func.min(Run.created_at))
        .where(is_active)
        .group_by(Run.checkpoint, Run.status)
    )
    found: dict[str, dict[str, tuple[int, datetime]]] = {}
    for checkpoint, status, number, oldest in session.execute(query):
        found.setdefault(checkpoint, {})[status] = (number, oldest)
    lines = []
    for checkpoint in sorted(found):
        waiting, running = (found[checkpoint].get(s.value) for s in (Status.QUEUED, Status.RUNNING))
        oldest_s = (now - waiting[1]).total_seconds() if waiting else None
        lines.append(QueueLine(checkpoint, waiting[0] if waiting else 0, running[0] if running else 0, oldest_s))
    return lines


def _active(session: Session, now: datetime) -> list[ActiveRun]:
    query = (
        select(Run, func.substr(Run.prompt, 1, _NUM_HEAD_CHARACTERS))
        .options(load_only(Run.id, Run.checkpoint, Run.status, Run.attempt, Run.num_tokens, Run.created_at))
        .where(Run.status.in_((Status.QUEUED.value, Status.RUNNING.value)))
        .order_by(Run.id)
        .limit(NUM_ACTIVE)
    )
    return [
        ActiveRun(
            id=run.id,
            checkpoint=run.checkpoint,
            prompt_start=unescape_start(head),
            status=Status(run.status),
            attempt=run.attempt,
            num_tokens=run.num_tokens,
            age_s=(now - run.created_at).total_seconds(),
        )
        for run, head in session.execute(query)
    ]


def _failures(session: Session, now: datetime) -> list[FailedRun]:
    query = (
        select(Run, func.substr(Run.prompt, 1, _NUM_HEAD_CHARACTERS))
        .options(load_only(Run.id, Run.ended_at, Run.stop_reason, Run.stop))
        .where(Run.status == Status.FAILED.value, Run.ended_at >= now - FAILURES_SINCE, Run.deleted_at.is_(None))
        .order_by(Run.ended_at.desc())
        .limit(NUM_FAILURES)
    )
    return [
        FailedRun(
            run.id,
            unescape_start(head),
            run.ended_at,
            StopReason(run.stop_reason),
            (run.stop or {}).get("message") or "",
        )
        for run, head in session.execute(query)
        if run.ended_at is not None and run.stop_reason is not None
    ]


def _spreads(session: Session) -> list[Spread]:
    query = (
        select(Run.checkpoint, Run.timing)
        .where(Run.status == Status.FINISHED.value, Run.timing.is_not(None), Run.deleted_at.is_(None))
        .order_by(Run.id.desc())
        .limit(NUM_MEASURED)
    )
    found: dict[tuple[str, str], list[float]] = {}
    for checkpoint, timing in session.execute(query):
        for figure, value in _figures(timing):
            found.setdefault((checkpoint, figure), []).append(value)
    return [
        Spread(checkpoint, figure, len(values), _percentiles(figure, values))
        for (checkpoint, figure), values in sorted(found.items())
    ]


def _percentiles(figure: str, values: Sequence[float]) -> tuple[float, ...]:
    """What 50, 95 and 99 of 100 runs stay below; of a rate, what they reach."""
    if figure == RATE:
        return tuple(quantile(values, round(1 - q, 6)) for q in QUANTILES)
    return tuple(quantile(values, q) for q in QUANTILES)


def _figures(timing: dict[str, Any]) -> list[tuple[str, float]]:
    """The figures of one run that it has; of its gaps between tokens the median."""
    values = {name: timing.get(name) for name in ("queue_ms", "prefill_ms", "ttft_ms", "tokens_per_s")}
    values["itl_ms"] = (timing.get("itl_ms") or {}).get("p50")
    return [(name, float(value)) for name, value in values.items() if value is not None]
