"""A settings form: the text that a person typed, by field; a field that is absent or empty is neutral.

Nothing is corrected on the way: what is no number is refused by name, and every bound is checked by `Settings`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.render.controls import BUDGET, CONTROLS, Control
from app.render.text import exact
from models.errors import SettingError
from models.json_values import marking_doubled
from models.sampling import DEFAULT_ORDER, NEUTRAL, Settings, refuse_doubled

Form = dict[str, str]


def neutral_text(field: str) -> str:
    """The text that a control has when it is neutral."""
    return _text(field, getattr(NEUTRAL, field))


def form_of(settings: Settings) -> Form:
    """The text of every control that is not neutral. `settings_of(form_of(s)) == s`."""
    changed = settings.with_changes().changed()
    form = {field: _text(field, getattr(settings, field)) for field in changed}
    if settings.seed is not None:
        form["seed"] = str(settings.seed)
    return form


def split(settings: Settings) -> tuple[Form, Form]:
    """`form_of` in two parts: that of the settings panel, and that of the budget beside the Run button."""
    form = form_of(settings)
    budget = {control.field: form.pop(control.field) for control in BUDGET if control.field in form}
    return form, budget


def settings_of(form: Mapping[str, Any]) -> Settings:
    """The settings that a form asks for. Raises SettingError naming field and value."""
    values: dict[str, Any] = {}
    for field, text in form.items():
        if field not in CONTROLS:
            raise SettingError(f"{field} is not a control of this page", field=field)
        if isinstance(text, str) and (text.strip() or (field == "stop" and text.strip("\n"))):
            values[field] = _value(CONTROLS[field], text)
    return Settings.parse(values)


def changed_words(changed: Mapping[str, Any]) -> str:
    """What `Settings.changed` names, as `temperature 0.8, top_p 0.95`; "" for nothing. Not escaped.

    Long values are told by their number of entries. A saved run may have settings that this version does not know.
    """
    return ", ".join(f"{field} {_short(field, value)}" for field, value in changed.items() if field != "max_tokens")


def differing_words(settings: Settings, base: Settings) -> str:
    """What sets `settings` apart from `base`: `temperature 0.7 instead of 0.2, top_p 0.9 instead of off`. Not escaped.

    Of lists it says only that they are others; the seed is no part of it.
    """
    ours, theirs = settings.as_dict(), base.as_dict()
    fields = [field for field in ours if field != "seed" and ours[field] != theirs[field]]
    return ", ".join(_difference(field, ours[field], theirs[field]) for field in fields)


def _difference(field: str, value: Any, other: Any) -> str:
    if field in ("order", "constraint") or isinstance(value, list | dict):
        return f"another {field}"
    return f"{field} {_named(field, value)} instead of {_named(field, other)}"


def _named(field: str, value: Any) -> str:
    off = CONTROLS[field].off if field in CONTROLS else ""
    return off if off and value == getattr(NEUTRAL, field) else _short(field, value)


def _short(field: str, value: Any) -> str:
    if field == "order":
        return "changed"
    if field == "constraint":
        return " ".join(value)  # its kind
    if isinstance(value, list | dict):
        return str(len(value))
    if value is None or isinstance(value, bool):
        return "on" if value else "off"
    return exact(value) if isinstance(value, float) else str(value)


def _text(field: str, value: Any) -> str:
    if value is None:
        return ""
    match CONTROLS[field].kind:
        case "flag":
            return "on" if value else ""
        case "choice":
            return str(value).lower()
        case "order":
            return " ".join(str(stage.value) for stage in value)
        case "lines":
            return "\n".join(_lines(field, value))
        case _:
            return exact(value) if isinstance(value, float) else str(value)


def _lines(field: str, value: Any) -> Sequence[str]:
    if field == "logit_bias":
        return [f"{token_id}: {_number_text(bias)}" for token_id, bias in value.items()]
    if field == "banned":
        return [json.dumps(item, ensure_ascii=False) for item in value]
    if field == "stop_token_ids":
        return [str(item) for item in value]
    if field == "constraint":
        return [json.dumps(value.model_dump(), ensure_ascii=False)]
    return [json.dumps(item, ensure_ascii=False)[1:-1].replace('\\"', '"') for item in value]


def _number_text(value: float) -> str:
    return repr(value)


def _value(control: Control, text: str) -> Any:
    match control.kind:
        case "number":
            return _number(control.field, text, float)
        case "integer":
            return _number(control.field, text, int)
        case "flag":
            return text == "on"
        case "order":
            return tuple(text.split()) if text.split() != list(DEFAULT_ORDER) else DEFAULT_ORDER
        case "lines":
            return _parsed_lines(control.field, [line for line in text.split("\n") if line])
        case _:
            return {"true": True, "false": False}.get(text, text)


def _number(field: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text.strip().replace("−", "-"))
    except ValueError as exc:
        noun = "a whole number" if kind is int else "a number"
        raise SettingError(f"{field}: {text.strip()[:80]!r} is not {noun}", field=field) from exc


def _parsed_lines(field: str, lines: list[str]) -> Any:
    if field == "stop":  # a stop string may be white space alone
        return tuple(_unescaped(line) for line in lines)
    lines = [line for line in lines if line.strip()]
    match field:
        case "logit_bias":
            return dict(_bias(line) for line in lines)
        case "banned":
            return tuple(_banned(line.strip()) for line in lines)
        case "constraint":
            return _constraint("\n".join(lines))
        case _:
            return tuple(int(_number(field, line, int)) for line in lines)


def _bias(line: str) -> tuple[int, float]:
    token_id, colon, bias = line.partition(":")
    if not colon:
        raise SettingError(f"logit_bias: {line.strip()[:80]!r} is not `token id: bias`", field="logit_bias")
    return int(_number("logit_bias", token_id, int)), float(_number("logit_bias", bias, float))


def _banned(line: str) -> int | str:
    if line.isascii() and line.isdigit():
        return int(line)
    if len(line) >= 2 and line.startswith('"') and line.endswith('"'):
        try:
            return str(json.loads(line))
        except ValueError as exc:
            raise SettingError(f"banned: {line[:80]} is not a quoted text", field="banned") from exc
    return line


def _constraint(text: str) -> Any:
    try:
        value = json.loads(text, object_pairs_hook=marking_doubled)
    except (ValueError, RecursionError) as exc:
        raise SettingError(f"constraint: it is not valid JSON: {exc}", field="constraint") from exc
    refuse_doubled(value, "constraint")
    return value


def _unescaped(line: str) -> str:
    """`\\n`, `\\t` and the other escapes of JSON become their characters; any other backslash stays one."""
    try:
        return str(json.loads('"' + line.replace('"', '\\"') + '"'))
    except ValueError:
        return line
