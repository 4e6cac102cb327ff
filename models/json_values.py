"""What is text and what is JSON: checks of values that come from outside, told as sentences (ValueError)."""

import math
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
