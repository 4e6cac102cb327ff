"""Compare: one prompt, two to four arms under the same noise, side by side."""

import gradio as gr

from app.handlers import EXAMPLE_PROMPT, Handlers
from app.pages.controls import arms_component, columns_component, plain, prompt_box, run_bar, steps
from app.pages.frame import SHORT, STREAM, frame, keep_status, query_js
from app.pages.playground import connect_count

FIRST_ARMS = [{"temperature": "0.2"}, {"temperature": "1.2"}]


def compare(demo: gr.Blocks, handlers: Handlers) -> None:
    """Lay the page out inside the current Blocks context and connect it."""
    top = frame("Compare")
    with gr.Row(elem_id="dl-main"):
        with gr.Column(elem_id="dl-left", scale=5, min_width=320):
            prompt, count = prompt_box(EXAMPLE_PROMPT)
            run, stop, budget = run_bar("Run all")
        with gr.Column(elem_id="dl-right", scale=6, min_width=320):
            arms = arms_component(FIRST_ARMS)
    columns = columns_component()
    outcome = plain("", "dl-outcome")
    steps()
    inspectors = plain("", "dl-inspectors")
    experiment_id = gr.Textbox(visible="hidden", elem_id="dl-experiment-id", label="experiment id")
    link = gr.Textbox(visible="hidden", label="link")

    watched = [columns, outcome, inspectors, experiment_id, top.alert, run, stop]
    run.click(handlers.compare, [prompt, arms, budget, top.checkpoint], watched, **STREAM)
    demo.load(handlers.open_experiment, [link], [prompt, arms, budget, *watched], js=query_js("experiment"), **STREAM)
    stop.click(handlers.stop_experiment, [experiment_id], [top.alert, stop], **SHORT)
    columns.select(handlers.inspect_arms, [top.checkpoint], [inspectors], trigger_mode="always_last", **SHORT)
    connect_count(demo, handlers, top, (prompt, count), budget)
    keep_status(demo, top, handlers)
