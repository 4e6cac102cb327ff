"""Schemas that no finite value satisfies, because every value would hold another one of its kind inside.

A grammar compiler does not see it: each step has something that may come next, and none of them ever ends.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

_MAX_ROUNDS: Final = 64  # of a schema that takes more, nothing is claimed


def is_endless(schema: Any) -> bool:
    """Whether only endless values satisfy `schema`: a JSON schema, or None where there is none.

    The least fixed point: nothing that is referred to has a value, until what it needs has one.
    """
    has_value: dict[str, bool] = {}
    for _ in range(_MAX_ROUNDS):
        before = dict(has_value)
        root = _has_value(schema, has_value)
        for pointer in list(has_value):
            has_value[pointer] = _has_value(_target(schema, pointer), has_value)
        if has_value == before:
            return not root
    return False


def _has_value(schema: Any, known: dict[str, bool]) -> bool:
    """Whether a finite value satisfies it, as far as is known of what it refers to. New references are noted."""
    if not isinstance(schema, dict):
        return schema is not False
    needs = [_has_value(part, known) for part in _parts(schema, "allOf")]
    if isinstance(pointer := schema.get("$ref"), str):
        needs.append(known.setdefault(pointer, False))
    for either in ("anyOf", "oneOf"):
        if parts := _parts(schema, either):
            needs.append(any(_has_value(part, known) for part in parts))
    types = schema.get("type")
    kinds: list[Any] = types if isinstance(types, list) else [types]
    if kinds and all(kind in ("object", "array") for kind in kinds):
        needs.append(any(all(_inside(schema, kind, known)) for kind in kinds))
    return all(needs)


def _inside(schema: Mapping[str, Any], kind: str, known: dict[str, bool]) -> list[bool]:
    """Of an object or array: whether each value that it must hold can be finite."""
    if kind == "object":
        properties, required = schema.get("properties"), schema.get("required")
        if not isinstance(properties, dict) or not isinstance(required, list):
            return []
        return [
            _has_value(properties[name], known) for name in required if isinstance(name, str) and name in properties
        ]
    least = schema.get("minItems")
    least = least if isinstance(least, int) else 0
    first = _parts(schema, "prefixItems")
    rest = [schema["items"]] if least > len(first) and "items" in schema else []
    return [_has_value(part, known) for part in [*first[:least], *rest]]


def _parts(schema: Mapping[str, Any], name: str) -> list[Any]:
    parts = schema.get(name)
    return parts if isinstance(parts, list) else []


def _target(schema: Any, pointer: str) -> Any:
    """What a reference inside the schema refers to; True for any other, of which nothing is claimed."""
    if pointer != "#" and not pointer.startswith("#/"):
        return True
    target = schema
    for step in unquote(pointer[2:]).split("/") if len(pointer) > 1 else ():
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and step in target:
            target = target[step]
        elif isinstance(target, list) and step.isascii() and step.isdigit() and int(step) < len(target):
            target = target[int(step)]
        else:
            return True
    return target
