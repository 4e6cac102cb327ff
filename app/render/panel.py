"""The settings panels as fixed HTML: rows from the table of controls; the browser fills in and reads the values."""

from typing import Final

from app.render.controls import BUDGET, GROUPS, Control
from app.render.form import neutral_text
from app.render.presets import preset_bar
from app.render.text import esc
from models.sampling import DEFAULT_ORDER

_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def arm_name(index: int) -> str:
    """The letters of an arm: A to Z, then AA, AB, ... `static/arms.js` names them the same."""
    name = _LETTERS[index % len(_LETTERS)]
    return name if index < len(_LETTERS) else arm_name(index // len(_LETTERS) - 1) + name


def settings_panel() -> str:
    """All controls but the budget, the rarer ones folded; with the count of changes and a reset."""
    groups = "".join(_group(g.title, "".join(_row(c) for c in g.controls)) for g in GROUPS)
    return (
        '<details class="dl-panel" open><summary class="dl-panel-head"><h2>Settings</h2>'
        '<span class="dl-changes" role="status"></span>'
        '<button type="button" class="dl-link" data-reset hidden>reset</button></summary>'
        f"{preset_bar()}{groups}</details>"
    )


def budget_bar() -> str:
    """Seed and max_tokens, in one line."""
    seed, max_tokens = BUDGET
    return (
        '<div class="dl-budget">'
        f'<label title="{esc(seed.help)}">seed {input_of(seed, _own_id(seed), size=12)}</label>'
        '<button type="button" class="dl-link" data-new-seed>new</button>'
        f'<label title="{esc(max_tokens.help)}">max tokens '
        f"{input_of(max_tokens, _own_id(max_tokens), size=6)}</label></div>"
    )


def _group(title: str, rows: str) -> str:
    if not title:
        return f'<div class="dl-rows">{rows}</div>'
    return (
        f'<details class="dl-group"><summary>{esc(title)} <span class="dl-group-changes"></span></summary>'
        f'<div class="dl-rows">{rows}</div></details>'
    )


def _row(control: Control) -> str:
    field = control.field
    return (
        f'<div class="dl-row dl-kind-{control.kind}" data-field="{field}">'
        f'<label for="dl-c-{field}">{field}</label>{_widget(control)}'
        f'<button type="button" class="dl-mark" data-neutral title="set {field} to neutral" tabindex="-1">●</button>'
        f'<details class="dl-help"><summary aria-label="about {field}">?</summary><p>{_help(control)}</p></details>'
        "</div>"
    )


def _help(control: Control) -> str:
    formula = f"<code>{esc(control.formula)}</code>" if control.formula else ""
    neutral = neutral_text(control.field)
    ending = f" Neutral: {esc(neutral)}." if neutral and control.kind in ("number", "integer") else ""
    return f"{esc(control.help)} {formula}{ending}"


def _widget(control: Control) -> str:
    if control.kind == "order":
        return f'<ol class="dl-order" {_own_id(control)} data-order>{_stages()}</ol>'
    slider = _slider(control) if control.kind in ("number", "integer") else ""
    return slider + input_of(control, _own_id(control), num_lines=2)


def _slider(control: Control) -> str:
    if not control.has_slider:
        return '<span class="dl-noslider"></span>'
    return (
        f'<input type="range" data-slider min="{control.low:g}" max="{control.high:g}" step="{control.step:g}" '
        f'value="{esc(neutral_text(control.field))}" tabindex="-1" aria-label="{control.field} slider">'
    )


def _own_id(control: Control) -> str:
    return f'id="dl-c-{control.field}" data-name="{control.field}"'


def input_of(control: Control, attributes: str, *, size: int = 7, num_lines: int = 1) -> str:
    """The element that holds a control's text; `attributes` say which of its kind it is."""
    match control.kind:
        case "flag":
            return f'<input type="checkbox" {attributes} data-input>'
        case "choice":
            options = "".join(f'<option value="{esc(c)}">{esc(c)}</option>' for c in control.choices)
            return f"<select {attributes} data-input>{options}</select>"
        case "lines":
            return (
                f'<textarea {attributes} data-input rows="{num_lines}" spellcheck="false" '
                f'placeholder="{esc(control.placeholder)}"></textarea>'
            )
        case _:
            return (
                f'<input type="text" {attributes} data-input inputmode="decimal" autocomplete="off" size="{size}" '
                f'placeholder="{esc(control.off or neutral_text(control.field))}">'
            )


def _stages() -> str:
    return "".join(
        f'<li data-stage="{stage.value}"><span>{stage.value}</span>'
        '<button type="button" data-up aria-label="earlier">↑</button>'
        '<button type="button" data-down aria-label="later">↓</button></li>'
        for stage in DEFAULT_ORDER
    )
