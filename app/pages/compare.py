"""Compare: one prompt, two to 64 arms under the same noise, side by side or as a grid."""

import gradio as gr

from app.handlers import Handlers
from app.handlers.watching import EXAMPLE_PROMPT
from app.pages.controls import arms_component, columns_component, kept_component, plain, prompt_box, run_bar, steps
from app.pages.frame import SHORT, STREAM, frame, keep_status
from app.pages.playground import connect_count

FIRST_ARMS = [{"temperature": "0.2"}, {"temperature": "1.2"}]
_LINK_JS = """() => {
  const query = new URLSearchParams(window.location.search);
  const start = new URLSearchParams(window.location.hash.slice(1)).get('start');
  return [query.get('experiment'), query.get('baseline'), query.getAll('from').join(' '), start];
}"""


def compare(demo: gr.Blocks, handlers: Handlers) -> None:
    """Lay the page out inside the current Blocks context and connect it."""
    top = frame("Compare")
    with gr.Row(elem_id="dl-main"):
        with gr.Column(elem_id="dl-left", scale=5, min_width=320):
            prompt, count = prompt_box(EXAMPLE_PROMPT)
            with gr.Row(elem_id="dl-runbar"):
                run, stop, budget = run_bar("Run all")
        with gr.Column(elem_id="dl-right", scale=6, min_width=320):
            arms = arms_component(FIRST_ARMS)
    kept = kept_component(handlers.history.functions("star", "describe"))
    columns = columns_component()
    outcome = plain("", "dl-outcome")
    steps()
    inspectors = plain("", "dl-inspectors")
    figures = plain("", "dl-figures")
    experiment_id = gr.Textbox(visible="hidden", elem_id="dl-experiment-id", label="experiment id")
    link = [gr.Textbox(visible="hidden", label=f"asked {name}") for name in ("experiment", "baseline", "from", "start")]

    events = handlers.compare
    watched = [columns, outcome, inspectors, figures, experiment_id, top.alert, run, stop]
    run.click(events.compare, [prompt, arms, budget, top.checkpoint], watched, **STREAM)
    demo.load(events.open_experiment, link, [prompt, arms, budget, *watched], js=_LINK_JS, **STREAM)
    experiment_id.change(events.kept, [experiment_id], [kept], **SHORT)
    stop.click(events.stop_experiment, [experiment_id], [top.alert, stop], **SHORT)
    columns.stop(events.stop_arm, None, [top.alert], trigger_mode="multiple", **SHORT)
    columns.apply(
        events.choose_baseline, None, [columns, outcome, figures, top.alert], trigger_mode="multiple", **SHORT
    )
    columns.select(events.inspect_arms, [top.checkpoint], [inspectors], trigger_mode="multiple", **SHORT)
    connect_count(demo, handlers, top, (prompt, count), budget)
    keep_status(demo, top, handlers)
