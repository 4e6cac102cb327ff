"""History: the saved runs, newest first, with a search; a line opens its run."""

import gradio as gr

from app.handlers import Handlers
from app.pages.controls import table_component
from app.pages.frame import SHORT, frame, keep_status
from app.render.ending import reason_words
from models.events import StopReason

_ADDRESS_JS = """(text, checkpoint, stop) => {
  const here = new URL(window.location.href);
  for (const [name, value] of [['q', text], ['checkpoint', checkpoint], ['stop', stop]]) {
    if (value) here.searchParams.set(name, value); else here.searchParams.delete(name);
  }
  window.history.replaceState(null, '', here);
  return [text, checkpoint, stop];
}"""
_OPEN_JS = """() => {
  const query = new URLSearchParams(window.location.search);
  return [query.get('q') || '', query.get('checkpoint') || '', query.get('stop') || ''];
}"""


def history(demo: gr.Blocks, handlers: Handlers, checkpoints: tuple[str, ...]) -> None:
    """Lay the page out inside the current Blocks context and connect it."""
    top = frame("History")
    with gr.Row(elem_id="dl-filters"):
        text = gr.Textbox(label="text", placeholder="in prompt or text", elem_id="dl-q", min_width=160, scale=3)
        checkpoint = gr.Dropdown(
            [("any", ""), *((name, name) for name in checkpoints)],
            value="",
            label="checkpoint",
            elem_id="dl-q-checkpoint",
            allow_custom_value=True,
            min_width=160,
            scale=2,
        )
        stop = gr.Dropdown(
            [("any", ""), *((reason_words(r), r.value) for r in StopReason)],
            value="",
            label="stop reason",
            elem_id="dl-q-stop",
            min_width=160,
            scale=2,
        )
    table = table_component()
    more = gr.Button("Older runs", visible=False, elem_id="dl-more", scale=0)
    before = gr.Textbox(visible="hidden", label="before")
    # What an address asks for is text: a filter's own component would refuse a value that is not on its list.
    asked = [gr.Textbox(visible="hidden", label=f"asked {name}") for name in ("text", "checkpoint", "stop")]

    filters = [text, checkpoint, stop]
    outputs = [table, before, more, top.alert]
    gr.on(
        [text.change, checkpoint.input, stop.input],
        handlers.find_runs,
        filters,
        outputs,
        js=_ADDRESS_JS,
        trigger_mode="always_last",
        **SHORT,
    )
    more.click(handlers.more_runs, [*filters, before], outputs, **SHORT)
    demo.load(handlers.open_history, asked, [*filters, *outputs], js=_OPEN_JS, **SHORT)
    keep_status(demo, top, handlers)
