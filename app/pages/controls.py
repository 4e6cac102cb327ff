"""The custom components of the pages: fixed templates from `render`, behaviour from `static`."""

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from app.render.arms import swept_controls
from app.render.arms_panel import arms_panel
from app.render.chat import EDITOR, editor_of
from app.render.controls import CONTROLS
from app.render.form import neutral_text
from app.render.guide import guide
from app.render.history_bar import history_frame
from app.render.panel import budget_bar, settings_panel
from app.render.presets import presets
from app.render.tokens import scales
from app.run_changes import MAX_TITLE_CHARACTERS
from app.sweeps import MAX_ARMS
from app.theme import script


def prompt_box(value: str) -> tuple[gr.Textbox, gr.HTML]:
    """The prompt with its live token count."""
    prompt = gr.Textbox(
        value,
        label="Prompt",
        lines=5,
        max_lines=14,
        elem_id="dl-prompt",
        placeholder="Text to continue",
        container=True,
    )
    return prompt, gr.HTML("", elem_id="dl-count", apply_default_css=False, js_on_load=None)


def chat_component() -> gr.HTML:
    """The switch between completion and chat, and the chat's messages; its value is the editor's."""
    return gr.HTML(
        editor_of(None),
        html_template=fixed(EDITOR),
        js_on_load=script("chat.js"),
        apply_default_css=False,
        elem_id="dl-chat",
    )


def settings_component() -> gr.HTML:
    """The settings panel; its value is the form: text by field, neutral fields absent."""
    return _form(settings_panel(), "dl-settings", draws_seed=False)


def run_bar(label: str) -> tuple[gr.Button, gr.Button, gr.HTML]:
    """For the row `dl-runbar`: Run, Stop, and the budget: seed and max_tokens, a seed drawn when the page opens."""
    run = gr.Button(label, variant="primary", elem_id="dl-run", min_width=90, scale=0)
    stop = gr.Button("Stop", variant="stop", visible=False, elem_id="dl-stop", min_width=90, scale=0)
    return run, stop, _form(budget_bar(), "dl-budget", draws_seed=True)


def arms_component(arms: list[dict[str, str]]) -> gr.HTML:
    """The form of a comparison: the forms of its arms, sweeps, seeds and noise (see `app.render.arms.plan_of`)."""
    return gr.HTML(
        {"arms": arms, "sweep": [], "seeds": "1", "noise": ""},
        html_template=fixed(arms_panel(swept_controls())),
        js_on_load=script("arms.js"),
        apply_default_css=False,
        elem_id="dl-arms",
        neutral=_neutral(),
        max_arms=MAX_ARMS,
        presets=presets(),
    )


def strip_component() -> gr.HTML:
    """The token strip of the playground; a chosen token is the event `select`."""
    template = (
        '<div class="dl-strip"><div class="dl-scalebar"></div><div class="dl-text" tabindex="0" role="group" '
        'aria-label="generated tokens; arrow keys choose one"></div>'
        '<p class="dl-under"><span class="dl-note" role="status"></span><span class="dl-made"></span>'
        '<span class="dl-hover"></span></p></div>'
    )
    return _strip(template, ("draft.js", "playground.js"), "dl-strip")


def columns_component() -> gr.HTML:
    """The arms side by side and as a grid.

    Its events: `select` for a chosen token, `stop` for one arm, `apply` for another baseline.
    """
    template = (
        '<div class="dl-strip"><div class="dl-progress"><progress hidden aria-label="runs that have ended"></progress>'
        '<span role="status"></span></div><div class="dl-scalebar"></div>'
        '<div class="dl-viewbar" hidden><label>diff against <select data-baseline data-plain></select></label>'
        '<button type="button" data-diff aria-pressed="false" title="what each arm has in place of the baseline, token '
        'by token">show diff</button><button type="button" data-grid aria-pressed="false">grid</button>'
        '<span class="dl-shading" hidden><label>shade by <select data-shade-by data-plain></select></label>'
        '<span class="dl-range"></span></span></div>'
        '<div class="dl-grid" hidden></div><div class="dl-columns"></div>'
        '<p class="dl-under"><span class="dl-hover"></span></p></div>'
    )
    return _strip(template, ("grid.js", "columns.js"), "dl-columns")


def kept_component(functions: list[Callable[[Any], dict[str, Any]]]) -> gr.HTML:
    """Star and title of a saved comparison; they are saved by the history's `functions`."""
    template = (
        f'<div class="dl-kept" hidden><button type="button" data-star aria-pressed="false" aria-label="star" '
        f'title="star"></button><input type="text" maxlength="{MAX_TITLE_CHARACTERS}" autocomplete="off" '
        'spellcheck="false" aria-label="title of this comparison" placeholder="Name this comparison">'
        '<span class="dl-soft" role="status"></span></div>'
    )
    return gr.HTML(
        {},
        html_template=fixed(template),
        js_on_load=script("kept.js"),
        apply_default_css=False,
        elem_id="dl-kept",
        server_functions=functions,
    )


def compare_link() -> gr.HTML:
    """The way to Compare with what stands on the page; its value is what `static/compare_link.js` puts in the link."""
    return gr.HTML(
        {},
        html_template=fixed('<a class="dl-link" href="./compare">Compare these settings</a>'),
        js_on_load=script("draft.js", "compare_link.js"),
        apply_default_css=False,
        elem_id="dl-compare-link",
    )


def steps() -> gr.HTML:
    """Buttons that do what the arrow keys do; they stay where they are while the inspector below changes."""
    buttons = (
        '<div class="dl-steps"><button type="button" class="dl-link" data-step="-1">&lt; previous token</button>'
        '<button type="button" class="dl-link" data-step="1">next token &gt;</button>'
        '<span class="dl-soft">arrow keys in the text</span></div>'
    )
    return plain(buttons, "dl-steps")


def json_fold() -> tuple[gr.Accordion, gr.Textbox, gr.Button, gr.Button]:
    """The settings as JSON, to copy, or to paste: the text changes only when it is asked to."""
    with gr.Accordion("as JSON", open=False, elem_id="dl-json") as fold:
        text = gr.Textbox(
            label="settings as JSON",
            lines=4,
            max_lines=12,
            buttons=["copy"],
            elem_id="dl-json-text",
            placeholder='{"temperature": 0.7}',
        )
        with gr.Row(elem_id="dl-json-buttons"):
            read = gr.Button("Read the settings", elem_id="dl-json-read", scale=0)
            apply = gr.Button("Apply", elem_id="dl-json-apply", scale=0)
    return fold, text, read, apply


def history_component(checkpoints: Sequence[str], functions: list[Callable[[Any], dict[str, Any]]]) -> gr.HTML:
    """The table of runs with all that stands over it; its script asks the `functions`."""
    return gr.HTML(
        {},
        html_template=fixed(history_frame(checkpoints)),
        js_on_load=script("history.js", "history_edit.js", "history_page.js"),
        apply_default_css=False,
        elem_id="dl-table",
        server_functions=functions,
    )


def guide_component() -> gr.HTML:
    """The keyboard map and the first hints."""
    return gr.HTML(
        "",
        html_template=fixed(guide()),
        js_on_load=script("guide.js"),
        apply_default_css=False,
        elem_id="dl-guide",
    )


def plain(value: str, elem_id: str) -> gr.HTML:
    """A place for HTML that a render function has made and escaped."""
    return gr.HTML(value, elem_id=elem_id, apply_default_css=False, js_on_load=None)


def _strip(template: str, behaviour: tuple[str, ...], elem_id: str) -> gr.HTML:
    return gr.HTML(
        {},
        html_template=fixed(template),
        js_on_load=script("flow.js", "strip.js", *behaviour),
        apply_default_css=False,
        elem_id=elem_id,
        scales=scales(),
    )


def _form(template: str, elem_id: str, *, draws_seed: bool) -> gr.HTML:
    return gr.HTML(
        {},
        html_template=fixed(template),
        js_on_load=script("draft.js", "panel.js"),
        apply_default_css=False,
        elem_id=elem_id,
        neutral=_neutral(),
        draws_seed=draws_seed,
        presets=presets(),
    )


def _neutral() -> dict[str, Any]:
    return {field: neutral_text(field) for field in CONTROLS}


def fixed(template: str) -> str:
    """The template as it is: a template is evaluated in the browser, so it may hold nothing to evaluate."""
    if any(mark in template for mark in ("${", "{{", "`", "@children")):
        raise ValueError("a component's template must be plain HTML")
    return template.replace("\\", "&#92;")
