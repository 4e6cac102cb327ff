"""The form of a comparison as fixed HTML: its arms as a table, sweeps, seeds and noise; `static/arms.js` fills it in.

One column is here; the browser adds the others as copies of it.
"""

from typing import Final

from app.render.controls import GROUPS, Control
from app.render.panel import input_of
from app.render.presets import PRESETS
from app.render.text import esc

SHARED_WORDS: Final = (
    "Shared noise: at each position all arms draw with the same random numbers, so where two arms part a setting did "
    "it, not luck."
)
OWN_WORDS: Final = "Own noise: every arm draws for itself, so two arms may part by luck alone; several seeds tell."
_VALUES_HELP: Final = "a list, 0.2, 0.7, 1.0, or a range, 0.2..1.0 step 0.2, or both"
_LEFT_OUT: Final = "order, prompt, record"  # a group that arms do not differ in


def arms_panel(swept: list[str]) -> str:
    """The controls as a table with a column an arm; `swept` are those that a sweep may be over."""
    groups = [g for g in GROUPS if g.title != _LEFT_OUT]
    bodies = "".join(_arm_rows(g.title, g.controls) for g in groups)
    return (
        f'<div class="dl-arms">{_head()}{_noise()}'
        f"{_sweep(0, 'sweep', swept)}{_sweep(1, 'and', swept)}"
        '<div class="dl-scroll"><table><thead><tr><td></td><th scope="col" data-arm="0"><b>A</b>'
        '<button type="button" class="dl-link" data-remove-arm>remove</button></th></tr></thead>'
        f"{bodies}</table></div></div>"
    )


def _head() -> str:
    presets = "".join(f'<option value="{esc(p.name)}" title="{esc(p.help)}">{esc(p.name)}</option>' for p in PRESETS)
    return (
        '<div class="dl-panel-head"><h2>Arms</h2>'
        '<span class="dl-soft" data-hint>a value that differs from A is marked</span>'
        '<button type="button" class="dl-link" data-add-arm>add arm</button>'
        f'<select data-plain data-add-preset aria-label="add an arm from a preset"><option value="">add preset</option>'
        f"{presets}</select>"
        '<button type="button" class="dl-link" data-add-sweep>sweep</button></div>'
    )


def _noise() -> str:
    return (
        '<div class="dl-noise"><label title="Each arm is run this often, under different seeds; intervals and '
        'verdicts come with 2 or more.">seeds '
        '<input type="text" inputmode="numeric" autocomplete="off" size="3" placeholder="1" data-seeds '
        "data-plain></label>"
        '<label><input type="checkbox" data-shared checked> shared noise</label>'
        f'<p class="dl-soft"><span data-when="">{SHARED_WORDS}</span><span data-when="own" hidden>{OWN_WORDS}</span>'
        "</p></div>"
    )


def _sweep(index: int, word: str, swept: list[str]) -> str:
    options = "".join(f'<option value="{esc(field)}">{esc(field)}</option>' for field in swept)
    more = '<button type="button" class="dl-link" data-add-sweep>second control</button>' if not index else ""
    return (
        f'<div class="dl-sweep" data-sweep hidden><label>{word} <select data-plain data-sweep-field>{options}</select>'
        f'</label><label class="dl-over">over <input type="text" autocomplete="off" spellcheck="false" data-plain '
        f'data-sweep-values placeholder="0.2, 0.7 or 0.2..1.0 step 0.2" title="{_VALUES_HELP}"></label>'
        f'{more}<button type="button" class="dl-link" data-remove-sweep>remove</button></div>'
    )


def _arm_rows(title: str, controls: tuple[Control, ...]) -> str:
    rows = "".join(_arm_row(c) for c in controls)
    if not title:
        return f"<tbody>{rows}</tbody>"
    toggle = (
        f'<th data-toggle colspan="2"><button type="button" class="dl-link" data-more aria-expanded="false">'
        f"{title}</button></th>"
    )
    return f'<tbody class="dl-folded"><tr>{toggle}</tr>{rows}</tbody>'


def _arm_row(control: Control) -> str:
    help_words = esc(f"{control.help} {control.formula}".strip())
    widget = input_of(control, f'aria-label="{control.field} of arm A"', size=8)
    return (
        f'<tr data-field="{control.field}"><th scope="row" title="{help_words}">{control.field}</th>'
        f'<td data-arm="0">{widget}</td></tr>'
    )
