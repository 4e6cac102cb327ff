"""Pages of saved runs: some lines at a time, in one order, each page going on exactly where the one before ended."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Text, func, select, tuple_, type_coerce
from sqlalchemy.orm import InstrumentedAttribute, Session, load_only

from app.record import saved_settings
from app.run_filter import Chosen, Place, Sort, SortKey
from models.db.base import unescape_start
from models.db.experiments import Experiment
from models.db.runs import Run
from models.events import RunKind, Status, StopReason

_NUM_HEAD_CHARACTERS: Final = 160
_SHORT: Final = (
    Run.id, Run.kind, Run.created_at, Run.checkpoint, Run.settings, Run.seed, Run.status, Run.stop_reason,
    Run.num_tokens, Run.mean_logprob, Run.mean_entropy, Run.tokens_per_s, Run.experiment_id, Run.arm_index,
    Run.sample_index, Run.parent_id, Run.fork_position, Run.title, Run.note, Run.is_starred, Run.tags,
)  # fmt: skip
"""All that a line says; of the rest a page would be as large as its texts."""


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
    note: str | None = None
    sample_index: int | None = None
    mean_entropy: float | None = None  # raw, nats
    fork_position: int | None = None  # of a branch


@dataclass(frozen=True, slots=True)
class Comparison:
    """The line of a comparison, over those of its runs."""

    id: str
    title: str | None
    note: str | None
    num_arms: int
    num_runs: int  # that are left
    is_starred: bool = False


@dataclass(frozen=True, slots=True)
class RunPage:
    """In the order asked for; `next` is the `before` of the following page, None on the last one."""

    rows: list[RunSummary]
    next: str | None
    comparisons: dict[str, Comparison] = field(default_factory=dict)  # of the runs that have one, by id


def read_page(session: Session, chosen: Chosen, sort: Sort, *, before: Place | None, limit: int) -> RunPage:
    """Up to `limit` of the chosen runs; no full texts are loaded."""
    ids: list[str] = []
    # At most two questions, so that each can walk an index: the runs with a value to sort by, then those without.
    for query in _parts(chosen, sort, before):
        if len(ids) <= limit:
            ids += session.scalars(query.limit(limit + 1 - len(ids)))
    shown = ids[:limit]
    lines = {row.id: row for row in read_lines(session, [Run.id.in_(shown)])} if shown else {}
    rows = [lines[run_id] for run_id in shown if run_id in lines]
    next_place = str(_place(rows[-1], sort)) if rows and len(ids) > limit else None
    return RunPage(rows, next_place, comparisons(session, {r.experiment_id for r in rows if r.experiment_id}))


def read_lines(session: Session, where: Iterable[ColumnElement[bool]], *order: Any) -> list[RunSummary]:
    """All runs `where` this is true, in this order."""
    return _summaries(session.execute(_lines().where(*where).order_by(*order)))


def comparisons(session: Session, ids: Iterable[str]) -> dict[str, Comparison]:
    """The comparisons with these ids, by id."""
    if not (ids := list(ids)):
        return {}
    mine = (Run.experiment_id == Experiment.id, Run.deleted_at.is_(None))
    num_left = select(func.count()).select_from(Run).where(*mine).correlate(Experiment).scalar_subquery()
    e = Experiment
    found = select(e.id, e.title, e.note, e.num_arms, num_left, e.is_starred)
    return {row[0]: Comparison(*row) for row in session.execute(found.where(Experiment.id.in_(ids)))}


def _parts(chosen: Chosen, sort: Sort, before: Place | None) -> list[Select[str]]:
    columns = sort.columns(is_scanned=chosen.is_scanned)
    query = select(Run.id).where(*chosen.conditions)
    ordered = query.order_by(*(column.asc() if sort.is_ascending else column.desc() for column in columns))
    if sort.key is SortKey.TIME:
        return [ordered if before is None else ordered.where(_after(before.run_id, Run.id, sort))]
    with_value, without = ordered, []
    if sort.is_of_some:
        with_value = ordered.where(columns[0].is_not(None))
        without = [query.where(columns[0].is_(None)).order_by(Run.id.desc())]
    if before is None:
        return [with_value, *without]
    if before.value is None:
        return [part.where(Run.id < before.run_id) for part in without]
    return [with_value.where(_after(tuple_(before.value, before.run_id), tuple_(*columns), sort)), *without]


def _after(place: Any, mine: Any, sort: Sort) -> Any:
    return mine > place if sort.is_ascending else mine < place


def _lines() -> Select[Run, str, str]:
    heads = (_head(Run.prompt).label("prompt_head"), _head(Run.text).label("text_head"))
    return select(Run, *heads).options(load_only(*_SHORT, raiseload=True))


def _place(row: RunSummary, sort: Sort) -> Place:
    values = {
        SortKey.TIME: None,
        SortKey.TOKENS: row.num_tokens,
        SortKey.SPEED: row.tokens_per_s,
        SortKey.LOGPROB: row.mean_logprob,
        SortKey.ENTROPY: row.mean_entropy,
    }
    return Place(row.id, values[sort.key])


def _head(column: InstrumentedAttribute[str]) -> ColumnElement[str]:
    return type_coerce(func.substr(column, 1, _NUM_HEAD_CHARACTERS), Text)


def _summaries(rows: Iterable[Any]) -> list[RunSummary]:
    return [_summary(*row) for row in rows]


def _summary(run: Run, prompt_head: str, text_head: str) -> RunSummary:
    settings = saved_settings(run)
    return RunSummary(
        id=run.id,
        kind=RunKind(run.kind),
        created_at=run.created_at,
        checkpoint=run.checkpoint,
        prompt_start=unescape_start(prompt_head),
        text_start=unescape_start(text_head),
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
        note=run.note,
        sample_index=run.sample_index,
        mean_entropy=run.mean_entropy,
        fork_position=run.fork_position,
    )
