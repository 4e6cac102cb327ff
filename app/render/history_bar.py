"""What stands above the table of runs, as fixed HTML: search, filters, the line for the chosen ones, the import."""

from collections.abc import Sequence
from typing import Final

from app.history_address import SETTING_NAMES
from app.render.ending import reason_words
from app.render.text import esc
from models.events import RunKind, Status, StopReason

_KINDS: Final = {RunKind.GENERATE: "generated", RunKind.SCORE: "scored"}
SETTINGS_HELP: Final = "one value, or a range such as 0.5..0.9, 0.5.. or ..0.9"
_NUMBER: Final = r"-?(\d+(\.\d+)?|\.\d+)"
_BOUNDS: Final = (
    f' autocomplete="off" pattern="{_NUMBER}|{_NUMBER}\\.\\.({_NUMBER})?|\\.\\.{_NUMBER}" title="{SETTINGS_HELP}"'
)
_SEED: Final = r' autocomplete="off" inputmode="numeric" pattern="\d+" title="a whole number"'
SEARCH_HELP: Final = (
    'words in any order, par* for beginnings, "a phrase"; in prompt, text, title and note'  # nothing to escape
)


def history_frame(checkpoints: Sequence[str]) -> str:
    """The whole component; its behaviour is static/history.js."""
    return (
        f'<div class="dl-runs">{_search()}{_filters(checkpoints)}<div class="dl-chips" aria-label="active filters" '
        f'role="group"></div>{_line()}'
        '<div class="dl-notice" role="status"></div><div class="dl-undo" role="status"></div>'
        '<div class="dl-scroll dl-place"></div>'
        '<button type="button" class="dl-button" data-more hidden>Older runs</button>'
        '<p class="dl-hint dl-keys-hint">↑ ↓ move · Enter opens · x selects · s stars · e edits · → ← unfold, fold · '
        "/ searches</p></div>"
    )


def _search() -> str:
    return (
        '<div class="dl-find"><label class="dl-search"><span class="dl-unseen">search</span>'
        f'<input type="search" name="q" autocomplete="off" spellcheck="false" placeholder=\'{SEARCH_HELP}\' '
        "title='" + SEARCH_HELP + "'></label>"
        '<button type="button" class="dl-link" data-filters aria-expanded="false" aria-controls="dl-all-filters">'
        "filters</button>"
        '<label class="dl-link dl-import">import<input type="file" accept=".jsonl,application/x-ndjson" '
        'class="dl-unseen" data-import></label></div>'
    )


def _filters(checkpoints: Sequence[str]) -> str:
    status = [(s.value, s.value) for s in Status]
    fields = (
        _choice("checkpoint", "checkpoint", [(name, name) for name in checkpoints]),
        _choice("stop", "stop reason", [(r.value, reason_words(r)) for r in StopReason]),
        _choice("status", "status", status),
        _choice("kind", "kind", [(kind.value, words) for kind, words in _KINDS.items()]),
        _choice("starred", "star", [("yes", "starred"), ("no", "not starred")]),
        f"<label>tag{_input('tag', 'text', 'any')}</label>",
        _range("tokens", ("nmin", "nmax"), "number"),
        _range("day (UTC)", ("since", "until"), "date", css="dl-days"),
        f'<p class="dl-hint">Settings: {SETTINGS_HELP}.</p>',
        _range("temperature", ("tmin", "tmax"), "number"),
        *(_setting(name) for name in SETTING_NAMES),
        f"<label>seed{_input('seed', 'text', 'any', extra=_SEED)}</label>",
    )
    return f'<div class="dl-all-filters" id="dl-all-filters" hidden>{"".join(fields)}</div>'


def _line() -> str:
    """One line that is always there: what is shown, or what can be done with the chosen ones."""
    return (
        '<div class="dl-line"><div data-none><span class="dl-shown"></span>'
        '<span class="dl-soft">export all of these: </span><a class="dl-link" data-export="jsonl" download>JSONL</a> '
        '<a class="dl-link" data-export="csv" download>CSV</a></div>'
        '<div data-some hidden role="group" aria-label="with the selected"><b class="dl-chosen"></b>'
        '<a class="dl-link" data-compare>compare</a>'
        '<button type="button" class="dl-link" data-do="star">star</button>'
        '<button type="button" class="dl-link" data-do="unstar">unstar</button>'
        '<form class="dl-tagging"><input name="tag" autocomplete="off" placeholder="tag" maxlength="40" '
        'aria-label="tag for the selected"><button class="dl-link">add tag</button></form>'
        '<a class="dl-link" data-export-chosen="jsonl" download>JSONL</a>'
        '<a class="dl-link" data-export-chosen="csv" download>CSV</a>'
        '<button type="button" class="dl-link dl-danger" data-do="delete">delete</button>'
        '<button type="button" class="dl-link" data-do="none">none</button></div></div>'
    )


def _choice(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    items = "".join(f'<option value="{esc(value)}">{esc(words)}</option>' for value, words in options)
    return f'<label>{label}<select name="{name}"><option value="">any</option>{items}</select></label>'


def _setting(name: str) -> str:
    return f"<label>{name}{_input(name, 'text', 'any', extra=_BOUNDS)}</label>"


def _range(label: str, names: tuple[str, str], kind: str, *, css: str = "") -> str:
    inputs = "".join(_input(name, kind, end, f"{label} {end}") for name, end in zip(names, ("from", "to"), strict=True))
    return f'<fieldset class="{css}"><legend>{label}</legend>{inputs}</fieldset>'


def _input(name: str, kind: str, placeholder: str, label: str = "", *, extra: str = "") -> str:
    spoken = f' aria-label="{label}"' if label else ""
    step = ' step="any" min="0"' if kind == "number" else ""
    return f'<input name="{name}" type="{kind}"{step} placeholder="{placeholder}"{spoken}{extra}>'
