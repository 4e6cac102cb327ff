"""The settings panels as fixed HTML: rows from the table of controls; the browser fills in and reads the values."""

from typing import Final

from app.render.controls import BUDGET, GROUPS, Control
from app.render.form import neutral_text
from app.render.text import esc
from models.sampling import DEFAULT_ORDER

ARM_NAMES: Final = "ABCD"


def arm_name(index: int) -> str:
    """A letter for an arm that the page has a column for, else its number."""
    return ARM_NAMES[index] if index < len(ARM_NAMES) else str(index + 1)


def settings_panel() -> str:
    """All controls but the budget, the rarer ones folded; with the count of changes and a reset."""
    groups = "".join(_group(g.title, "".join(_row(c) for c in g.controls)) for g in GROUPS)
    return (
        '<details class="dl-panel" open><summary class="dl-panel-head"><h2>Settings</h2>'
        '<span class="dl-changes" role="status"></span>'
        '<button type="button" class="dl-link" data-reset hidden>reset</button></summary>'
        f"{groups}</details>"
    )


def budget_bar() -> str:
    """Seed and max_tokens, in one line."""
    seed, max_tokens = BUDGET
    return (
        '<div class="dl-budget">'
        f'<label title="{esc(seed.help)}">seed {_input(seed, _own_id(seed), size=12)}</label>'
        '<button type="button" class="dl-link" data-new-seed>new</button>'
        f'<label title="{esc(max_tokens.help)}">max tokens '
        f"{_input(max_tokens, _own_id(max_tokens), size=6)}</label></div>"
    )


def arms_panel() -> str:
    """The same controls as a table with a column for each arm; a value that differs from arm A is marked."""
    head = "".join(
        f'<th scope="col" data-arm="{i}"><b>{name}</b>'
        + ('<button type="button" class="dl-link" data-remove-arm title="remove this arm">remove</button>' if i else "")
        + "</th>"
        for i, name in enumerate(ARM_NAMES)
    )
    bodies = "".join(_arm_rows(g.title, g.controls) for g in GROUPS if g.title != "order, prompt, record")
    return (
        '<div class="dl-arms"><div class="dl-panel-head"><h2>Arms</h2>'
        '<span class="dl-soft">same prompt, same noise; a value that differs from A is marked</span>'
        '<button type="button" class="dl-link" data-add-arm>add arm</button></div>'
        f'<div class="dl-scroll"><table><thead><tr><th></th>{head}</tr></thead>{bodies}</table></div></div>'
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
    return slider + _input(control, _own_id(control), num_lines=2)


def _slider(control: Control) -> str:
    if not control.has_slider:
        return '<span class="dl-noslider"></span>'
    return (
        f'<input type="range" data-slider min="{control.low:g}" max="{control.high:g}" step="{control.step:g}" '
        f'value="{esc(neutral_text(control.field))}" tabindex="-1" aria-label="{control.field} slider">'
    )


def _own_id(control: Control) -> str:
    return f'id="dl-c-{control.field}" data-name="{control.field}"'


def _input(control: Control, attributes: str, *, size: int = 7, num_lines: int = 1) -> str:
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


def _arm_rows(title: str, controls: tuple[Control, ...]) -> str:
    rows = "".join(_arm_row(c) for c in controls)
    if not title:
        return f"<tbody>{rows}</tbody>"
    toggle = f'<th colspan="5"><button type="button" class="dl-link" data-more>{title}</button></th>'
    return f'<tbody class="dl-folded"><tr>{toggle}</tr>{rows}</tbody>'


def _arm_row(control: Control) -> str:
    cells = "".join(f'<td data-arm="{i}">{_arm_widget(control, name)}</td>' for i, name in enumerate(ARM_NAMES))
    head = f'<th scope="row" title="{_help_title(control)}">{control.field}</th>'
    return f'<tr data-field="{control.field}">{head}{cells}</tr>'


def _arm_widget(control: Control, arm: str) -> str:
    return _input(control, f'aria-label="{control.field} of arm {arm}"', size=8)


def _help_title(control: Control) -> str:
    return esc(f"{control.help} {control.formula}".strip())
