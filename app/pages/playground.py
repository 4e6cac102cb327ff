"""The playground: prompt, settings, text as it comes, inspector."""

import gradio as gr

from app.handlers import EXAMPLE_PROMPT, Handlers
from app.pages.controls import plain, prompt_box, run_bar, settings_component, steps, strip_component
from app.pages.frame import SHORT, STREAM, Frame, frame, keep_status, query_js
from app.render.inspector import EMPTY


def playground(demo: gr.Blocks, handlers: Handlers) -> None:
    """Lay the page out inside the current Blocks context and connect it."""
    top = frame("Playground")
    with gr.Row(elem_id="dl-main"):
        with gr.Column(elem_id="dl-left", scale=6, min_width=320):
            prompt, count = prompt_box(EXAMPLE_PROMPT)
            run, stop, budget = run_bar("Run")
            strip = strip_component()
            facts = plain("", "dl-facts")
        with gr.Column(elem_id="dl-right", scale=5, min_width=320):
            settings = settings_component()
            steps()
            inspector = plain(EMPTY, "dl-inspector")
    run_id = gr.Textbox(visible="hidden", elem_id="dl-run-id", label="run id")
    link = gr.Textbox(visible="hidden", label="link")

    watched = [strip, facts, inspector, run_id, top.alert, run, stop]
    run.click(handlers.run, [prompt, settings, budget, top.checkpoint], watched, **STREAM)
    demo.load(handlers.open_run, [link], [prompt, settings, budget, *watched], js=query_js("run"), **STREAM)
    stop.click(handlers.stop, [run_id], [top.alert, stop], **SHORT)
    strip.select(handlers.inspect, [top.checkpoint], [inspector], trigger_mode="always_last", **SHORT)
    connect_count(demo, handlers, top, (prompt, count), settings)
    keep_status(demo, top, handlers)


def connect_count(
    demo: gr.Blocks, handlers: Handlers, top: Frame, box: tuple[gr.Textbox, gr.HTML], settings: gr.HTML
) -> None:
    """Keep the token count under the prompt true while the person types."""
    prompt, count = box
    gr.on(
        [demo.load, prompt.change, top.checkpoint.change],
        handlers.count_tokens,
        [prompt, settings, top.checkpoint],
        [count],
        trigger_mode="always_last",
        **SHORT,
    )
