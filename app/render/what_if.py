"""A saved run under other settings: its controls as fixed HTML, its strip, and where a fresh run would leave it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from app.render.controls import CONTROLS, Control
from app.render.ending import reason_words
from app.render.form import form_of, neutral_text, settings_of
from app.render.text import count, decimal, esc, percent, quoted
from app.render.tokens import line
from models.events import TokenPicked
from models.examination import FirstDifference, WhatIf
from models.sampling import Settings
from models.score import perplexity_of

FIELDS: Final = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram_size",
)

_ROUNDING: Final = (
    "Exact up to rounding: two tokens that contest a pick by less than about 0.00001 may come out either way."
)


def what_if_panel() -> str:
    """The controls that a what-if may move; all other settings are the run's."""
    rows = "".join(_row(CONTROLS[field]) for field in FIELDS)
    return (
        f'<div class="dl-rows dl-whatif-rows">{rows}</div>'
        '<p class="dl-whatif-bar"><span class="dl-soft">Everything else is as in the run.</span>'
        '<button type="button" class="dl-link" data-restore hidden>back to the run\'s settings</button>'
        '<a data-score href="./score">coverage and perplexity of this text</a></p>'
    )


def what_if_form(settings: Settings) -> dict[str, str]:
    """The text of the controls of `what_if_panel` in a run's settings; neutral ones are absent."""
    return {field: text for field, text in form_of(settings).items() if field in FIELDS}


def what_if_settings(settings: Settings, form: Mapping[str, Any]) -> Settings:
    """A run's settings with the controls of the panel as `form` has them. Raises SettingError."""
    asked = settings_of({field: text for field, text in form.items() if field in FIELDS})
    return settings.with_changes(**{field: getattr(asked, field) for field in FIELDS})


def what_if_lines(tokens: Sequence[TokenPicked], what_if: WhatIf) -> str:
    """The strip's lines: the saved tokens, their processed probability that under the new settings."""
    pairs = zip(tokens, what_if.alternatives, strict=False)
    return "".join(line(replace(token, logprob=alternative.logprob)) for token, alternative in pairs)


def what_if_words(tokens: Sequence[TokenPicked], what_if: WhatIf, *, is_scored: bool = False, noun: str = "run") -> str:
    """Where a fresh run leaves the saved one, and what the new settings make of the saved text, as HTML.

    `noun`: "branch" for one, whose fresh run begins with the same tokens.
    """
    first = "" if is_scored else _first(tokens, what_if, noun)
    note = f'<span class="dl-help-note" title="{_ROUNDING}">exact</span>'
    return f'<p class="dl-verdict">{first}</p><p class="dl-hint">{_text_figures(tokens, what_if)} {note}</p>'


def _first(tokens: Sequence[TokenPicked], what_if: WhatIf, noun: str) -> str:
    first = what_if.first_difference
    if first is None:
        return f"<b>A fresh {noun} has the same tokens</b>, all of them."
    at = (
        f'<button type="button" class="dl-link" data-goto="{first.position}">token {first.position}</button>'
        if first.position < len(tokens)
        else f"token {first.position}"
    )
    if first.saved_id is None:
        return f"The saved {noun} ends here; <b>a fresh {noun} goes on at {at}</b> with {_piece(tokens, first)}."
    saved = f"{quoted(tokens[first.position].piece)} ({_was_and_is(tokens[first.position], what_if)})"
    if first.fresh_id is None:
        why = reason_words(first.fresh_stop) if first.fresh_stop else "its end"
        return f"<b>A fresh {noun} ends before {at}</b> ({esc(why)}), where the saved one has {saved}."
    return f"<b>A fresh {noun} leaves it at {at}</b>: it picks {_piece(tokens, first)} instead of {saved}."


def _was_and_is(token: TokenPicked, what_if: WhatIf) -> str:
    logprob = what_if.alternatives[token.position].logprob
    now = "impossible" if logprob is None else percent(logprob)
    return f"was {percent(token.logprob)}, is {now}"


def _piece(tokens: Sequence[TokenPicked], first: FirstDifference) -> str:
    """The fresh run's token as text, where the records hold it: at its position first."""
    near = tokens[first.position : first.position + 1]
    for token in (*near, *tokens):
        pieces = [c.piece for c in token.candidates if c.token_id == first.fresh_id]
        if token.token_id == first.fresh_id:
            pieces.append(token.piece)
        if pieces and pieces[0]:
            return quoted(pieces[0])
    return f"<code>#{first.fresh_id}</code>"


def _text_figures(tokens: Sequence[TokenPicked], what_if: WhatIf) -> str:
    new = [alternative.logprob for alternative in what_if.alternatives]
    gone = [n for n, logprob in enumerate(new) if logprob is None]
    if gone:
        place = f'<button type="button" class="dl-link" data-goto="{gone[0]}">token {gone[0]}</button>'
        verb = "is" if len(gone) == 1 else "are"
        return f"{count(len(gone))} of {count(len(new), 'token')} {verb} impossible now, the first {place}."
    was = _perplexity([token.logprob for token in tokens])
    return f"Perplexity of the saved text under these settings {_perplexity(new)}, under its own {was}."


def _perplexity(logprobs: Sequence[float | None]) -> str:
    known = [logprob for logprob in logprobs if logprob is not None]
    if not known or len(known) < len(logprobs):
        return "infinite"
    return f"<b>{decimal(perplexity_of(math.fsum(known) / len(known)), 2) or 'beyond a float'}</b>"


def _row(control: Control) -> str:
    field = control.field
    neutral = esc(neutral_text(field))
    slider = '<span class="dl-noslider"></span>'
    if control.has_slider:
        slider = (
            f'<input type="range" data-slider min="{control.low:g}" max="{control.high:g}" step="{control.step:g}" '
            f'value="{neutral}" tabindex="-1" aria-label="what if {field}, slider">'
        )
    return (
        f'<div class="dl-row" data-field="{field}" data-neutral-text="{neutral}" title="{esc(control.help)}">'
        f'<label for="dl-w-{field}">{field}</label>{slider}'
        f'<input type="text" id="dl-w-{field}" data-input inputmode="decimal" autocomplete="off" size="7" '
        f'placeholder="{esc(control.off or neutral)}"><span class="dl-was"></span></div>'
    )
