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
        f'<label title="{esc(seed.help)}">seed {_input(seed, size=12)}</label>'
        '<button type="button" class="dl-link" data-new-seed>new</button>'
        f'<label title="{esc(max_tokens.help)}">max tokens {_input(max_tokens, size=6)}</label></div>'
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
    match control.kind:
        case "flag":
            return f'<input type="checkbox" id="dl-c-{control.field}" data-input>'
        case "choice":
            options = "".join(f'<option value="{esc(c)}">{esc(c)}</option>' for c in control.choices)
            return f'<select id="dl-c-{control.field}" data-input>{options}</select>'
        case "lines":
            return (
                f'<textarea id="dl-c-{control.field}" data-input rows="2" spellcheck="false" '
                f'placeholder="{esc(control.placeholder)}"></textarea>'
            )
        case "order":
            return f'<ol class="dl-order" id="dl-c-{control.field}" data-order>{_stages()}</ol>'
        case _:
            return _slider(control) + _input(control)


def _slider(control: Control) -> str:
    if not control.has_slider:
        return '<span class="dl-noslider"></span>'
    return (
        f'<input type="range" data-slider min="{control.low:g}" max="{control.high:g}" step="{control.step:g}" '
        f'value="{esc(neutral_text(control.field))}" tabindex="-1" aria-label="{control.field} slider">'
    )


def _input(control: Control, *, size: int = 7) -> str:
    return (
        f'<input type="text" id="dl-c-{control.field}" data-input data-name="{control.field}" inputmode="decimal" '
        f'autocomplete="off" size="{size}" placeholder="{esc(control.off or neutral_text(control.field))}">'
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
    label = f'aria-label="{control.field} of arm {arm}" data-input'
    match control.kind:
        case "flag":
            return f'<input type="checkbox" {label}>'
        case "choice":
            options = "".join(f'<option value="{esc(c)}">{esc(c)}</option>' for c in control.choices)
            return f"<select {label}>{options}</select>"
        case "lines":
            return f'<textarea {label} rows="1" spellcheck="false" placeholder="{esc(control.placeholder)}"></textarea>'
        case _:
            placeholder = esc(control.off or neutral_text(control.field))
            return f'<input type="text" {label} size="8" autocomplete="off" placeholder="{placeholder}">'


def _help_title(control: Control) -> str:
    return esc(f"{control.help} {control.formula}".strip())
