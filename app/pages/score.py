"""Score: a given text under the checkpoint and settings, token by token; perplexity, and what the settings forbid."""

import gradio as gr

from app.handlers import Handlers
from app.handlers.watching import EXAMPLE_PROMPT
from app.pages.controls import fixed, plain, prompt_box, settings_component, steps, strip_component
from app.pages.frame import SHORT, STREAM, frame, keep_status, query_js
from app.pages.playground import connect_count
from app.render.inspector import EMPTY
from app.theme import script

EXAMPLE_TEXT = " Paris. It is the largest city in France."


def score(demo: gr.Blocks, handlers: Handlers) -> None:
    """Lay the page out inside the current Blocks context and connect it."""
    top = frame("Score")
    with gr.Row(elem_id="dl-main", elem_classes="dl-score"):
        with gr.Column(elem_id="dl-left", scale=6, min_width=320):
            prompt, count = prompt_box(EXAMPLE_PROMPT)
            text = _text_box()
            run, stop = _run_bar()
            strip = strip_component()
            figures = plain("", "dl-figures")
            coverage = plain("", "dl-coverage")
            _links()
        with gr.Column(elem_id="dl-right", scale=5, min_width=320):
            settings = settings_component()
            steps()
            inspector = plain(EMPTY, "dl-inspector")
    run_id = gr.Textbox(visible="hidden", elem_id="dl-run-id", label="run id")
    link = gr.Textbox(visible="hidden", label="link")

    watched = [strip, figures, coverage, inspector, run_id, top.alert, run, stop]
    run.click(handlers.score.score, [prompt, text, settings, top.checkpoint], watched, **STREAM)
    demo.load(handlers.score.open_run, [link], [prompt, text, settings, *watched], js=query_js("run"), **STREAM)
    stop.click(handlers.playground.stop, [run_id], [top.alert, stop], **SHORT)
    strip.select(handlers.playground.inspect, [top.checkpoint], [inspector], trigger_mode="multiple", **SHORT)
    connect_count(demo, handlers, top, (prompt, count), settings)
    keep_status(demo, top, handlers)


def _text_box() -> gr.Textbox:
    return gr.Textbox(
        EXAMPLE_TEXT,
        label="Text to score",
        lines=5,
        max_lines=14,
        elem_id="dl-given",
        placeholder="What stands after the prompt, its leading space included",
        container=True,
    )


def _run_bar() -> tuple[gr.Button, gr.Button]:
    with gr.Row(elem_id="dl-runbar"):
        run = gr.Button("Score", variant="primary", elem_id="dl-run", min_width=90, scale=0)
        stop = gr.Button("Stop", variant="stop", visible=False, elem_id="dl-stop", min_width=90, scale=0)
    return run, stop


def _links() -> None:
    """The behaviour of the links into the strip, which stand in other components."""
    gr.HTML(
        html_template=fixed("<i hidden></i>"),
        js_on_load=script("goto.js"),
        apply_default_css=False,
        elem_id="dl-goto",
    )
