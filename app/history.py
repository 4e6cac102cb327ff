"""What was saved, read back: pages of runs, one run whole, a comparison, and a run's events as they were sent."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Text, delete, func, or_, select, type_coerce
from sqlalchemy.orm import InstrumentedAttribute, defer

from app.ids import check_id, not_found
from app.record import ExperimentDetail, RunDetail, detail, saved_events, saved_settings
from models.db.base import escape_text, unescape_text
from models.db.experiments import Experiment
from models.db.runs import Run
from models.db.session import Database
from models.errors import RefusedError
from models.events import RunKind, Status, StopReason

__all__ = ["ExperimentDetail", "History", "RunDetail", "RunFilter", "RunPage", "RunSummary"]

MAX_PAGE: Final = 500
_NUM_HEAD_CHARACTERS: Final = 160
_LIKE_ESCAPE: Final = "\\"
_TEXT_ESCAPE: Final = escape_text("\0")[0]


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a page shows; an empty field does not filter.

    `text` is looked for in prompts and texts, letter case aside (on SQLite only for the letters a to z).
    """

    text: str = ""
    checkpoint: str | None = None
    stop_reason: StopReason | None = None
    status: Status | None = None
    is_starred: bool | None = None


_LARGE: Final = (Run.prompt, Run.text, Run.milestones, Run.prompt_token_ids, Run.given_text, Run.messages)
"""What a list does not read: a page of it would be as large as its texts."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of the history."""

    id: str
    kind: RunKind
    created_at: datetime
    checkpoint: str
    prompt_start: str
    text_start: str
    changed: dict[str, Any]  # the settings that are not neutral
    seed: int
    status: Status
    stop_reason: StopReason | None
    num_tokens: int
    mean_logprob: float | None  # raw, nats per token
    tokens_per_s: float | None
    experiment_id: str | None
    arm_index: int | None
    parent_id: str | None
    title: str | None
    is_starred: bool
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunPage:
    """Newest first; `next` is the `before` of the following page, None on the last one."""

    rows: list[RunSummary]
    next: str | None


class History:
    """Queries over the saved runs. Every method raises DatabaseUnavailableError when there is no answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, filters: RunFilter, *, before: str | None = None, limit: int = 50) -> RunPage:
        """Up to `limit` runs older than the run `before`, newest first; no full texts are loaded.

        Raises NotFoundError where `before` is no id.
        """
        limit = max(1, min(limit, MAX_PAGE))
        query = (
            select(Run, _head(Run.prompt).label("prompt_head"), _head(Run.text).label("text_head"))
            .options(*(defer(column, raiseload=True) for column in _LARGE))
            .where(*_conditions(filters))
            .order_by(Run.id.desc())
            .limit(limit + 1)
        )
        if before is not None:
            query = query.where(Run.id < check_id(before, of="run"))
        with self._database.read() as session:
            found = [_summary(*row) for row in session.execute(query)]
        rows = found[:limit]
        return RunPage(rows, rows[-1].id if len(found) > limit else None)

    def run(self, run_id: str) -> RunDetail:
        """One run whole. Raises NotFoundError."""
        with self._database.read() as session:
            run = session.get(Run, check_id(run_id, of="run"))
            if run is None:
                raise not_found(run_id, of="run")
            return detail(run, saved_events(session, run))

    def experiment(self, experiment_id: str) -> ExperimentDetail:
        """One comparison with its arms whole. Raises NotFoundError."""
        order = (Run.arm_index, Run.sample_index, Run.id)
        with self._database.read() as session:
            experiment = session.get(Experiment, check_id(experiment_id, of="comparison"))
            if experiment is None:
                raise not_found(experiment_id, of="comparison")
            runs = session.scalars(select(Run).where(Run.experiment_id == experiment_id).order_by(*order)).all()
            return ExperimentDetail(
                id=experiment.id,
                created_at=experiment.created_at,
                checkpoint=experiment.checkpoint,
                prompt=experiment.prompt,
                baseline_index=experiment.baseline_index,
                title=experiment.title,
                note=experiment.note,
                arms=[detail(run, saved_events(session, run)) for run in runs],
            )

    def ids(self, filters: RunFilter) -> Iterator[str]:
        """The ids of all matching runs, newest first, read page by page."""
        before: str | None = None
        while True:
            query = select(Run.id).where(*_conditions(filters)).order_by(Run.id.desc()).limit(MAX_PAGE)
            with self._database.read() as session:
                found = session.scalars(query if before is None else query.where(Run.id < before)).all()
            yield from found
            if len(found) < MAX_PAGE:
                return
            before = found[-1]

    def delete(self, run_id: str) -> None:
        """Delete an ended run with its tokens. Raises NotFoundError, and RefusedError for a run that is active."""
        with self._database.write() as session:
            status = session.scalar(select(Run.status).where(Run.id == check_id(run_id, of="run")))
            if status is None:
                raise not_found(run_id, of="run")
            if not Status(status).is_terminal:
                raise RefusedError(f"Run {run_id} is {status}; stop it first, then delete it.", field="id")
            session.execute(delete(Run).where(Run.id == run_id))


def _conditions(filters: RunFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if filters.text:
        pattern = _containing(filters.text)
        conditions.append(or_(*(c.ilike(pattern, escape=_LIKE_ESCAPE) for c in (Run.prompt, Run.text))))
    if filters.checkpoint is not None:
        conditions.append(Run.checkpoint == filters.checkpoint)
    if filters.stop_reason is not None:
        conditions.append(Run.stop_reason == filters.stop_reason.value)
    if filters.status is not None:
        conditions.append(Run.status == filters.status.value)
    if filters.is_starred is not None:
        conditions.append(Run.is_starred == filters.is_starred)
    return conditions


def _containing(text: str) -> str:
    """A LIKE pattern for texts that contain `text`, its own wildcards taken literally."""
    for special in (_LIKE_ESCAPE, "%", "_"):
        text = text.replace(special, _LIKE_ESCAPE + special)
    return f"%{text}%"


def _head(column: InstrumentedAttribute[str]) -> ColumnElement[str]:
    return type_coerce(func.substr(column, 1, _NUM_HEAD_CHARACTERS), Text)


def _unescape_head(head: str) -> str:
    """Undo the column's escape in a text that was cut off, perhaps inside an escape of up to six characters."""
    start = head.rfind(_TEXT_ESCAPE)
    if start >= 0:
        num_needed = 6 if head[start + 1 : start + 2] == "2" else 2
        head = head if len(head) - start >= num_needed else head[:start]
    return unescape_text(head)


def _summary(run: Run, prompt_head: str, text_head: str) -> RunSummary:
    settings = saved_settings(run)
    return RunSummary(
        id=run.id,
        kind=RunKind(run.kind),
        created_at=run.created_at,
        checkpoint=run.checkpoint,
        prompt_start=_unescape_head(prompt_head),
        text_start=_unescape_head(text_head),
        changed=settings.changed(),
        seed=int(run.seed),
        status=Status(run.status),
        stop_reason=None if run.stop_reason is None else StopReason(run.stop_reason),
        num_tokens=run.num_tokens,
        mean_logprob=run.mean_logprob,
        tokens_per_s=run.tokens_per_s,
        experiment_id=run.experiment_id,
        arm_index=run.arm_index,
        parent_id=run.parent_id,
        title=run.title,
        is_starred=run.is_starred,
        tags=tuple(run.tags),
    )
