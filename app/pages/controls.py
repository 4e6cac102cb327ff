"""The custom components of the pages: fixed templates from `render`, behaviour from `static`."""

from typing import Any

import gradio as gr

from app.render.controls import CONTROLS
from app.render.form import neutral_text
from app.render.panel import arms_panel, budget_bar, settings_panel
from app.render.tokens import scales
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


def settings_component() -> gr.HTML:
    """The settings panel; its value is the form: text by field, neutral fields absent."""
    return _form(settings_panel(), "dl-settings", draws_seed=False)


def run_bar(label: str) -> tuple[gr.Button, gr.Button, gr.HTML]:
    """Run, Stop, and the budget: seed and max_tokens, a seed being drawn when the page opens."""
    with gr.Row(elem_id="dl-runbar"):
        run = gr.Button(label, variant="primary", elem_id="dl-run", min_width=90, scale=0)
        stop = gr.Button("Stop", variant="stop", visible=False, elem_id="dl-stop", min_width=90, scale=0)
        budget = _form(budget_bar(), "dl-budget", draws_seed=True)
    return run, stop, budget


def arms_component(value: list[dict[str, str]]) -> gr.HTML:
    """The arms of a comparison; its value is the list of their forms."""
    return gr.HTML(
        value,
        html_template=_fixed(arms_panel()),
        js_on_load=script("arms.js"),
        apply_default_css=False,
        elem_id="dl-arms",
        neutral=_neutral(),
    )


def strip_component() -> gr.HTML:
    """The token strip of the playground; a chosen token is the event `select`."""
    template = (
        '<div class="dl-strip"><div class="dl-scalebar"></div><div class="dl-text" tabindex="0" role="group" '
        'aria-label="generated tokens; arrow keys choose one"></div>'
        '<p class="dl-under"><span class="dl-note" role="status"></span><span class="dl-made"></span>'
        '<span class="dl-hover"></span></p></div>'
    )
    return _strip(template, "playground.js", "dl-strip")


def columns_component() -> gr.HTML:
    """The arms' strips side by side; a chosen token is the event `select`."""
    template = (
        '<div class="dl-strip"><div class="dl-scalebar"></div><div class="dl-columns"></div>'
        '<p class="dl-under"><span class="dl-hover"></span></p></div>'
    )
    return _strip(template, "columns.js", "dl-columns")


def steps() -> gr.HTML:
    """Buttons that do what the arrow keys do; they stay where they are while the inspector below changes."""
    buttons = (
        '<div class="dl-steps"><button type="button" class="dl-link" data-step="-1">&lt; previous token</button>'
        '<button type="button" class="dl-link" data-step="1">next token &gt;</button>'
        '<span class="dl-soft">arrow keys in the text</span></div>'
    )
    return plain(buttons, "dl-steps")


def table_component() -> gr.HTML:
    """The table of runs; its value is the rows to put in or to add."""
    return gr.HTML(
        {},
        html_template=_fixed('<div class="dl-place"></div>'),
        js_on_load=script("history.js"),
        apply_default_css=False,
        elem_id="dl-table",
    )


def plain(value: str, elem_id: str) -> gr.HTML:
    """A place for HTML that a render function has made and escaped."""
    return gr.HTML(value, elem_id=elem_id, apply_default_css=False, js_on_load=None)


def _strip(template: str, behaviour: str, elem_id: str) -> gr.HTML:
    return gr.HTML(
        {},
        html_template=_fixed(template),
        js_on_load=script("strip.js", behaviour),
        apply_default_css=False,
        elem_id=elem_id,
        scales=scales(),
    )


def _form(template: str, elem_id: str, *, draws_seed: bool) -> gr.HTML:
    return gr.HTML(
        {},
        html_template=_fixed(template),
        js_on_load=script("panel.js"),
        apply_default_css=False,
        elem_id=elem_id,
        neutral=_neutral(),
        draws_seed=draws_seed,
    )


def _neutral() -> dict[str, Any]:
    return {field: neutral_text(field) for field in CONTROLS}


def _fixed(template: str) -> str:
    """The template as it is: a template is evaluated in the browser, so it may hold nothing to evaluate."""
    if any(mark in template for mark in ("${", "{{", "`", "@children")):
        raise ValueError("a component's template must be plain HTML")
    return template.replace("\\", "&#92;")
