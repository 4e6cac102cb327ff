"""The state of the history as parameters of an address: what a link says, and what a page or an export then shows.

Unknown names and values that are none are left out: an address is typed by people and kept for years.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from app.render.text import exact
from app.run_filter import NEWEST_FIRST, Bounds, RunFilter, Sort, SortKey
from models.db.runs import SETTINGS
from models.events import RunKind, Status, StopReason
from models.sampling import MAX_SEED

MAX_CHARACTERS: Final = 1000
TO: Final = ".."
"""Between the ends of a range: `0.5..0.9`; one of them may be left out."""
_LARGEST: Final = 2**31 - 1
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Asked:
    """What an address asks for."""

    filters: RunFilter
    sort: Sort

    @property
    def is_grouped(self) -> bool:
        """Nothing is chosen, or only what is starred, so comparisons can be shown as one line each."""
        return self.sort == NEWEST_FIRST and self.filters in (RunFilter(), RunFilter(is_starred=True))


def asked_of(parameters: Mapping[str, Any]) -> Asked:
    """`{"q": "paris", "stop": "eos", "sort": "tokens", "order": "up"}` as filters and order."""
    found: dict[str, Any] = {}
    for name, (field, parse) in _FILTERS.items():
        if (value := _value(parameters, name, parse)) is not None:
            found[field] = value
    bounds = {name: _value(parameters, name, _bounds) for name in SETTING_NAMES}
    found["settings"] = {name: value for name, value in bounds.items() if value is not None}
    key = _try(SortKey, str(parameters.get("sort") or "")) or SortKey.TIME
    return Asked(RunFilter(**found), Sort(key, is_ascending=parameters.get("order") == "up"))


def active(filters: RunFilter) -> dict[str, str]:
    """The filters that act, by the name of their parameter, as `asked_of` reads them; the search text is not one."""
    values = {field.name: getattr(filters, field.name) for field in fields(RunFilter)}
    neutral = RunFilter()
    said = {
        name: _text(name, values[field])
        for name, (field, _) in _FILTERS.items()
        if name != "q" and values[field] != getattr(neutral, field)
    }
    return said | {name: _bounds_text(bounds) for name, bounds in filters.settings.items()}


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        day = value if name == "since" else value - timedelta(days=1)
        return day.date().isoformat()
    return exact(value) if isinstance(value, float) else str(value)


def _bounds_text(bounds: Bounds) -> str:
    if bounds.low == bounds.high and bounds.low is not None:
        return exact(bounds.low)
    return TO.join("" if end is None else exact(end) for end in (bounds.low, bounds.high))


def _value(parameters: Mapping[str, Any], name: str, parse: Callable[[str], _Value]) -> _Value | None:
    text = str(parameters.get(name) or "").strip()[:MAX_CHARACTERS]
    return _try(parse, text) if text else None


def _try(parse: Callable[[str], _Value], text: str) -> _Value | None:
    try:
        return parse(text)
    except (ValueError, OverflowError):
        return None


def _flag(text: str) -> bool:
    return {"yes": True, "no": False}[text] if text in ("yes", "no") else _refuse(text)


def _number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _count(text: str) -> int:
    value = int(text)
    return value if 0 <= value <= _LARGEST else _refuse(text)


def _seed(text: str) -> int:
    value = int(text)
    return value if 0 <= value <= MAX_SEED else _refuse(text)


def _bounds(text: str) -> Bounds:
    low, to, high = text.partition(TO)
    if not to:
        return Bounds(_number(low), _number(low))
    low_end, high_end = (_number(end) if end.strip() else None for end in (low, high))
    return _refuse(text) if low_end is None and high_end is None else Bounds(low_end, high_end)


def _day(text: str) -> datetime:
    return datetime.fromisoformat(text[:10]).replace(tzinfo=UTC)


def _day_after(text: str) -> datetime:
    return _day(text) + timedelta(days=1)


def _refuse(text: str) -> Any:
    raise ValueError(text)


_FILTERS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "q": ("text", str),
    "checkpoint": ("checkpoint", str),
    "stop": ("stop_reason", StopReason),
    "status": ("status", Status),
    "kind": ("kind", RunKind),
    "starred": ("is_starred", _flag),
    "tag": ("tag", str),
    "tmin": ("min_temperature", _number),
    "tmax": ("max_temperature", _number),
    "nmin": ("min_tokens", _count),
    "nmax": ("max_tokens", _count),
    "since": ("since", _day),
    "until": ("until", _day_after),
    "seed": ("seed", _seed),
}
"""Parameter -> the field of RunFilter and how its text is read. `until` is the last day itself."""

SETTING_NAMES: Final = tuple(name for name in SETTINGS if name != "temperature")
"""Settings that are parameters by their own name, with one value or a range. Temperature is `tmin` and `tmax`."""

FILTER_NAMES: Final = (*_FILTERS, *SETTING_NAMES)
