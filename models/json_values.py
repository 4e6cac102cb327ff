"""What is text and what is JSON: checks of values that come from outside, told as sentences (ValueError)."""

import math
from collections.abc import Iterator
from typing import Any, Final

MAX_COUNT: Final = 2**53 - 1  # the largest whole number that every reader of JSON has exactly


def refuse_surrogates(text: str) -> None:
    """Raise ValueError for a text that has no UTF-8."""
    for index, char in enumerate(text):
        if "\ud800" <= char <= "\udfff":
            raise ValueError(f"character {index} is a lone surrogate (U+{ord(char):04X}), which is not text; remove it")


def refuse_non_json(value: Any, *, max_depth: int) -> None:
    """Raise ValueError for what strict JSON cannot hold, or is nested deeper than `max_depth`. Never recurses."""
    left = [(value, 1)]
    while left:
        item, depth = left.pop()
        if depth > max_depth:
            raise ValueError(f"it is nested more than {max_depth} deep; make it flatter")
        if isinstance(item, dict):
            for key, inner in item.items():
                if not isinstance(key, str):
                    raise ValueError(f"it has the key {key!r}, which is no text")
                refuse_surrogates(key)
                left.append((inner, depth + 1))
        elif isinstance(item, list):
            left.extend((inner, depth + 1) for inner in item)
        else:
            _refuse_leaf(item)


def _refuse_leaf(value: Any) -> None:
    match value:
        case bool() | None:
            return
        case str():
            refuse_surrogates(value)
        case int():
            if abs(value) > MAX_COUNT:
                raise ValueError(
                    f"it holds a whole number beyond {MAX_COUNT}, which not every reader of JSON has exactly"
                )
        case float():
            if not math.isfinite(value):
                raise ValueError(f"it holds {value}, which is no number")
        case _:
            raise ValueError(f"it holds a {type(value).__name__}, which is no JSON")


def objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every JSON object in a value, itself included."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            yield item
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)


class Doubled(dict[str, Any]):
    """A JSON object in which a name was given twice."""

    def __init__(self, values: dict[str, Any], name: str) -> None:
        super().__init__(values)
        self.name = name


def marking_doubled(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`, as `object_pairs_hook`. Whoever reads the value can then name the field that holds it."""
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    names = [name for name, _ in pairs]
    return Doubled(values, next(name for name in names if names.count(name) > 1))


def doubled_name(value: Any) -> str | None:
    """A name that an object in `value` has twice; None where there is none."""
    return next((found.name for found in objects_in(value) if isinstance(found, Doubled)), None)
