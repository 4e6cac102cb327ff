"""The folds under a run's facts that look back at it, each a component of its own with the one event `select`."""

import gradio as gr

from app.handlers import Handlers
from app.pages.controls import fixed
from app.pages.frame import STREAM
from app.render.tokens import scales
from app.render.what_if import what_if_panel
from app.theme import script

_PLACE = '<div class="dl-fold-place" aria-live="polite"></div>'


def examine_folds(handlers: Handlers) -> None:
    """Lay the folds out where the page is and connect them. They show themselves when the page's run has ended."""
    with gr.Column(elem_id="dl-folds"):
        influence = _fold("influence", "influence: what each control did", _PLACE, "goto.js", "examine.js")
        what_if = _fold(
            "what-if", "what if: other settings", _what_if(), "flow.js", "strip.js", "examine.js", "what_if.js"
        )
        check = _fold("check", "cache check", _asked_for("Check against an uncached pass"), "examine.js")
        replay = _fold("replay", "replay", _asked_for("Run again with the same settings and seed"), "examine.js")
    influence.select(handlers.examine.influence, [], [influence], trigger_mode="multiple", **STREAM)
    what_if.select(handlers.examine.what_if, [], [what_if], trigger_mode="multiple", **STREAM)
    check.select(handlers.examine.check_cache, [], [check], trigger_mode="multiple", **STREAM)
    replay.select(handlers.examine.replay, [], [replay], trigger_mode="multiple", **STREAM)


def _fold(name: str, title: str, body: str, *behaviour: str) -> gr.HTML:
    template = (
        f'<details class="dl-fold" data-fold="{name}" hidden><summary>{title}</summary>'
        f'<div class="dl-fold-body">{body}</div></details>'
    )
    return gr.HTML(
        {},
        html_template=fixed(template),
        js_on_load=script(*behaviour),
        apply_default_css=False,
        elem_id=f"dl-fold-{name}",
        scales=scales(),
    )


def _asked_for(words: str) -> str:
    """A fold that computes at the press of its button only."""
    return f'<button type="button" class="dl-ask" data-ask>{words}</button>{_PLACE}'


def _what_if() -> str:
    strip = (
        '<div class="dl-text" tabindex="0" role="group" aria-label="the saved tokens under other settings; arrow keys '
        'choose one"></div><p class="dl-under"><span class="dl-hover"></span></p>'
    )
    return f"{what_if_panel()}{_PLACE}{strip}"
