"""Sweeps: the values that a control takes from arm to arm, written as a list or a range, and the grid they span.

Everything here is text, as in a form: `0.2` and `0.20` are one value, and whether a control takes it at all is said
where the settings are made. A range counts in decimal, so `0.1..0.5 step 0.1` ends with 0.5 and nothing like it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Final

from models.errors import LimitError, SettingError

MAX_ARMS: Final = 64
MAX_SWEEPS: Final = 2

_RANGE: Final = re.compile(r"(?P<low>.+?)\s*\.\.\s*(?P<high>.+?)(?:\s+step\s+(?P<step>.+))?", re.DOTALL)
_NUM_SHOWN: Final = 60  # characters of what was typed
_MAX_DIGITS: Final = 20  # beyond these no control has a value


@dataclass(frozen=True, slots=True)
class Sweep:
    """One control and the different values, as text, that it takes in order."""

    field: str
    values: tuple[str, ...]


def parse_sweep(field: str, text: str) -> Sweep:
    """The sweep of `field` over values like `0.2, 0.7, 1.0` or `0.2..1.0 step 0.2`, or both with commas between.

    Raises SettingError naming the field and what is wrong, LimitError for more values than there can be arms.
    """
    if not text.strip():
        raise SettingError(f"sweep of {field}: it has no values; write 0.2, 0.7 or 0.2..1.0 step 0.2", field=field)
    values: list[str] = []
    for item in text.replace("\N{MINUS SIGN}", "-").split(","):
        values += _item_values(field, item.strip())
        if len(values) > MAX_ARMS:
            raise LimitError(
                f"The sweep of {field} has more than {MAX_ARMS} values; a comparison has at most {MAX_ARMS} arms.",
                field=field,
            )
    _refuse_twice(field, values)
    return Sweep(field, tuple(values))


def grid(sweeps: Sequence[Sweep]) -> list[dict[str, str]]:
    """What each arm of a grid changes, row by row: the first sweep gives the rows, the second their columns.

    Raises SettingError for one control that is swept twice, LimitError for too many sweeps, arms, or too few arms.
    """
    if not 1 <= len(sweeps) <= MAX_SWEEPS:
        raise LimitError(f"A sweep is over 1 or {MAX_SWEEPS} controls, not {len(sweeps)}.", field="sweep")
    fields = [sweep.field for sweep in sweeps]
    if len(set(fields)) < len(fields):
        raise SettingError(f"sweep of {fields[0]}: it is given twice; put all its values in one", field=fields[0])
    sizes = " times ".join(str(len(sweep.values)) for sweep in sweeps)
    arms = [dict(zip(fields, values, strict=True)) for values in product(*(sweep.values for sweep in sweeps))]
    if len(arms) > MAX_ARMS:
        raise LimitError(f"{sizes} values are {len(arms)} arms; a comparison has at most {MAX_ARMS}.", field=fields[0])
    if len(arms) == 1:
        raise LimitError("One value is one arm, and a comparison needs 2; add a value to the sweep.", field=fields[0])
    return arms


def axes_of(arms: Sequence[Mapping[str, str]]) -> tuple[Sweep, ...]:
    """The one or two sweeps whose grid, in order, is these arms; () where they are none. `axes_of(grid(s)) == s`.

    Every arm names the same fields.
    """
    varied = [field for field in (arms[0] if arms else ()) if len({arm[field] for arm in arms}) > 1]
    if not 1 <= len(varied) <= MAX_SWEEPS:
        return ()
    for fields in (varied, varied[::-1]):
        sweeps = tuple(Sweep(field, tuple(dict.fromkeys(arm[field] for arm in arms))) for field in fields)
        if list(product(*(s.values for s in sweeps))) == [tuple(arm[f] for f in fields) for arm in arms]:
            return sweeps
    return ()


def _item_values(field: str, item: str) -> list[str]:
    if not item:
        raise SettingError(f"sweep of {field}: there is no value between two commas, or at an end", field=field)
    if ".." not in item:
        return [item]
    found = _RANGE.fullmatch(item)
    if found is None:
        raise SettingError(f"sweep of {field}: {item[:_NUM_SHOWN]!r} is no range; write 0.2..1.0 step 0.2", field=field)
    low, high = (_number(field, found[name]) for name in ("low", "high"))
    if found["step"] is None and not (low == low.to_integral_value() and high == high.to_integral_value()):
        raise SettingError(
            f"sweep of {field}: {item[:_NUM_SHOWN]!r} needs a step, as in {low}..{high} step 0.1", field=field
        )
    step = Decimal(1 if low <= high else -1) if found["step"] is None else _number(field, found["step"])
    return _range_values(field, low, high, step)


def _range_values(field: str, low: Decimal, high: Decimal, step: Decimal) -> list[str]:
    if step == 0 or (high - low) * step < 0:
        raise SettingError(f"sweep of {field}: steps of {step} never lead from {low} to {high}", field=field)
    number = (high - low) / step
    if number >= MAX_ARMS:
        raise LimitError(
            f"The sweep of {field} from {low} to {high} in steps of {step} has more than {MAX_ARMS} values.",
            field=field,
        )
    return [_plain(low + i * step) for i in range(int(number) + 1)]


def _number(field: str, text: str) -> Decimal:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite() or abs(number.adjusted()) > _MAX_DIGITS or len(number.as_tuple().digits) > _MAX_DIGITS:
        raise SettingError(f"sweep of {field}: {text.strip()[:_NUM_SHOWN]!r} is not a number", field=field)
    return number


def _plain(number: Decimal) -> str:
    """`1.0` as `1`, `0.20` as `0.2`, never with an exponent."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _refuse_twice(field: str, values: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for value in values:
        try:
            number = Decimal(value)
            key = _plain(number) if number.is_finite() and abs(number.adjusted()) <= _MAX_DIGITS else value
        except InvalidOperation:
            key = value
        if key in seen:
            other = "" if seen[key] == value else f" (also as {seen[key][:_NUM_SHOWN]})"
            raise SettingError(f"sweep of {field}: {value[:_NUM_SHOWN]} is there twice{other}; leave one", field=field)
        seen[key] = value
