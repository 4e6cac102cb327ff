"""Which runs a list shows, and in which order, as SQL."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, UnaryExpression, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased
from sqlalchemy.sql.operators import custom_op, eq, ge, is_, le, lt

from app.ids import check_id
from app.search import Term, find, tag_term, terms_of
from models.db.experiments import Experiment
from models.db.runs import SETTINGS, Run
from models.errors import NotFoundError, RefusedError
from models.events import RunKind, Status, StopReason

_SETTINGS: Final[dict[str, InstrumentedAttribute[Any]]] = {name: getattr(Run, name) for name in SETTINGS}
_Compared = tuple[InstrumentedAttribute[Any], Callable[[Any, Any], ColumnElement[bool]], Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers from `low` to `high`, both among them; None is no end. At least one end is a number."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a page shows; an empty field does not filter.

    `text` is what is typed into the search box: app.search says what it finds. `settings` are bounds of the settings
    that models.db.runs.SETTINGS names; `max_tokens` there is the budget, the field of this name the number generated.
    """

    text: str = ""
    checkpoint: str | None = None
    stop_reason: StopReason | None = None
    status: Status | None = None
    is_starred: bool | None = None
    kind: RunKind | None = None
    tag: str | None = None
    experiment_id: str | None = None
    min_temperature: float | None = None
    max_temperature: float | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    since: datetime | None = None
    until: datetime | None = None  # not included
    seed: int | None = None
    settings: Mapping[str, Bounds] = field(default_factory=dict)


class SortKey(StrEnum):
    """What a list is in the order of."""

    TIME = "time"
    TOKENS = "tokens"
    SPEED = "speed"
    LOGPROB = "logprob"
    ENTROPY = "entropy"


_COLUMNS: Final[dict[SortKey, InstrumentedAttribute[Any]]] = {
    SortKey.TIME: Run.id,  # ids sort by the time of their making
    SortKey.TOKENS: Run.num_tokens,
    SortKey.SPEED: Run.tokens_per_s,
    SortKey.LOGPROB: Run.mean_logprob,
    SortKey.ENTROPY: Run.mean_entropy,
}


@dataclass(frozen=True, slots=True)
class Sort:
    """An order of all runs. Equal values are in the order of ids; runs without a value come last, newest first."""

    key: SortKey = SortKey.TIME
    is_ascending: bool = False

    @property
    def is_of_some(self) -> bool:
        """Whether there are runs without a value to sort by."""
        return self.key not in (SortKey.TIME, SortKey.TOKENS)

    def columns(self, *, is_scanned: bool) -> tuple[Any, ...]:
        """What the runs with a value are in the order of; with `is_scanned` so that no index has it."""
        if self.key is SortKey.TIME:
            return (Run.id,)
        column = _COLUMNS[self.key]
        return (hidden(column) if is_scanned else column, Run.id)


NEWEST_FIRST: Final = Sort()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page ends: after the run `run_id`, which has `value` in the sorted column, or none."""

    run_id: str
    value: float | None = None

    def __str__(self) -> str:
        return self.run_id if self.value is None else f"{self.run_id}~{self.value!r}"

    @classmethod
    def parse(cls, text: str) -> "Place":
        """The inverse of `str`. Raises NotFoundError."""
        run_id, mark, value = text.partition("~")
        try:
            return cls(check_id(run_id, of="run"), float(value) if mark else None)
        except ValueError:
            raise NotFoundError(f"There is no page after {text!r}; begin with the first.", field="before") from None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The runs of a list as conditions of a query over `Run`, and how that query goes best.

    With `is_scanned` it looks at all of them, in the index that holds whatever is asked for, and sorts then; else it
    goes along the order, which fills a page after some steps.
    """

    conditions: tuple[ColumnElement[bool], ...]
    is_scanned: bool = False


def choose(session: Session, filters: RunFilter, sort: Sort = NEWEST_FIRST, *, is_grouped: bool = False) -> Chosen:
    """The runs under these filters, deleted ones never, to be sorted so; with `is_grouped` one of each comparison.

    Raises RefusedError for a text without words.
    """
    terms = _terms(filters)
    compared = _compared(filters)
    # One equality may walk an index of its own, which has the ids in their order; with more to ask, that way would lead
    # through the whole table.
    is_one_equality = len(compared) == 1 and compared[0][1] in (eq, is_)
    has_own_index = is_one_equality and not terms and not filters.is_starred and sort.key is SortKey.TIME
    is_sqlite = session.get_bind().dialect.name == "sqlite"
    is_hidden = is_sqlite and not has_own_index
    conditions: list[ColumnElement[bool]] = [Run.deleted_at.is_(None)]
    conditions += [compare(hidden(column) if is_hidden else column, value) for column, compare, value in compared]
    if filters.is_starred:
        conditions.append(_starred())
    if is_grouped:
        conditions.append(_leads(only_starred=bool(filters.is_starred)))
    if not terms:
        return Chosen(tuple(conditions), is_scanned=bool(compared or filters.is_starred))
    found = find(session, terms)
    # To ask each of many runs for its words takes PostgreSQL longest; it knows best how few of them it can do with.
    is_scanned = found.is_rare or (bool(compared) and is_sqlite)
    return Chosen((*conditions, found.condition), is_scanned)


def hidden(column: ColumnElement[Any] | InstrumentedAttribute[Any]) -> ColumnElement[Any]:
    """The same value, as an expression for which no index is walked: SQLite and, of numbers, PostgreSQL."""
    expression: Any = column
    return UnaryExpression(expression, operator=custom_op("+"), type_=column.type)


def _terms(filters: RunFilter) -> list[Term]:
    terms = terms_of(filters.text)
    if filters.text.strip() and not terms:
        raise RefusedError(
            f"There is no word in {filters.text.strip()!r}. The search finds words, also by their beginning (par*), "
            'and phrases ("capital of France").',
            field="text",
        )
    return terms if filters.tag is None else [*terms, tag_term(filters.tag)]


def _compared(filters: RunFilter) -> list[_Compared]:
    asked: list[_Compared] = [
        (Run.checkpoint, eq, filters.checkpoint),
        (Run.stop_reason, eq, filters.stop_reason),
        (Run.status, eq, filters.status),
        (Run.kind, eq, filters.kind),
        (Run.experiment_id, eq, filters.experiment_id),
        (Run.seed, eq, filters.seed),
    ]
    found: list[_Compared] = [(column, compare, str(v)) for column, compare, v in asked if v is not None]
    others: list[_Compared] = [
        (Run.is_starred, is_, None if filters.is_starred else filters.is_starred),
        (Run.temperature, ge, filters.min_temperature),
        (Run.temperature, le, filters.max_temperature),
        (Run.num_tokens, ge, filters.min_tokens),
        (Run.num_tokens, le, filters.max_tokens),
        (Run.created_at, ge, filters.since),
        (Run.created_at, lt, filters.until),
    ]
    for name, bounds in filters.settings.items():
        column = _SETTINGS[name]
        others += [(column, ge, bounds.low), (column, le, bounds.high)]
    return found + [(column, compare, value) for column, compare, value in others if value is not None]


def _starred() -> ColumnElement[bool]:
    """Runs with a star and those of a comparison with one, as a list of ids: each half has its index."""
    one, other = aliased(Run), aliased(Run)
    runs = select(one.id).where(one.is_starred.is_(True))
    return Run.id.in_(runs.union_all(select(other.id).where(other.experiment_id.in_(_starred_comparisons()))))


def _starred_comparisons() -> Select[str]:
    return select(Experiment.id).where(Experiment.is_starred.is_(True))


def _leads(*, only_starred: bool = False) -> ColumnElement[bool]:
    """Whether a run stands for its comparison: the newest that is left of it. Runs of none stand for themselves.

    With `only_starred` so do the runs of a comparison that has no star.
    """
    other = aliased(Run)
    newer = select(other.id).where(
        other.experiment_id == Run.experiment_id, other.id > Run.id, other.deleted_at.is_(None)
    )
    alone = [Run.experiment_id.is_(None), ~newer.correlate(Run).exists()]
    return or_(*alone, *([Run.experiment_id.not_in(_starred_comparisons())] if only_starred else []))
