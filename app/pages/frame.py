"""What every page has: the header with the links, the line about the checkpoint, the place for errors."""

from dataclasses import dataclass
from typing import Any, Final

import gradio as gr

from app.handlers import Handlers
from app.render.notices import alert
from app.render.text import esc

PAGES: Final = (
    ("Playground", "./"),
    ("Compare", "./compare"),
    ("History", "./history"),
    ("Score", "./score"),
    ("Status", "./status"),
)
STATUS_EVERY_S: Final = 5
# Streams may be many at once: each is one waiting coroutine. Everything else is short.
MAX_STREAMS: Final = 200
MAX_SHORT: Final = 32

PRIVATE: Final[dict[str, Any]] = {"show_progress": "hidden", "api_visibility": "private"}
STREAM: Final[dict[str, Any]] = {**PRIVATE, "concurrency_limit": MAX_STREAMS, "concurrency_id": "stream"}
SHORT: Final[dict[str, Any]] = {**PRIVATE, "concurrency_limit": MAX_SHORT}


@dataclass(frozen=True, slots=True)
class Frame:
    """The components of the frame that pages refer to."""

    alert: gr.HTML
    checkpoint: gr.Dropdown
    status: gr.HTML
    nudge: gr.Button  # pressed by `static/nudge.js` soon after every action


def frame(page: str) -> Frame:
    """Draw the header of `page`."""
    gr.Navbar(visible=False)
    with gr.Row(elem_id="dl-header"):
        gr.HTML(_links(page), elem_id="dl-nav", apply_default_css=False, js_on_load=None)
        status = gr.HTML(
            '<p class="dl-status">…</p>', elem_id="dl-status", apply_default_css=False, js_on_load=None, min_width=200
        )
        checkpoint = gr.Dropdown(
            [], label="checkpoint", visible=False, elem_id="dl-checkpoint", container=False, min_width=160, scale=0
        )
    place = gr.HTML(alert(None), elem_id="dl-alert", apply_default_css=False, js_on_load=None)
    nudge = gr.Button("status", visible="hidden", elem_id="dl-nudge")
    return Frame(place, checkpoint, status, nudge)


def keep_status(demo: gr.Blocks, parts: Frame, handlers: Handlers) -> None:
    """Fill the checkpoint line when the page opens and keep it true; a part that was away comes back by itself."""
    event: dict[str, Any] = {
        "fn": handlers.frame.status,
        "inputs": [parts.checkpoint],
        "outputs": [parts.status, parts.checkpoint],
        **SHORT,
    }
    demo.load(**event)
    # Gradio's client can lose an event that is sent while the page's stream is being closed; the next event opens a new
    # stream, which brings the lost answer too. So a tick is sent even while an earlier one has no answer.
    gr.on([gr.Timer(STATUS_EVERY_S).tick, parts.nudge.click], **event, trigger_mode="multiple")
    parts.checkpoint.input(**event)


def _links(page: str) -> str:
    items = "".join(
        f'<a href="{href}"{" aria-current=page" if name == page else ""}>{esc(name)}</a>' for name, href in PAGES
    )
    return f'<h1>Decode Lab</h1><nav aria-label="pages">{items}</nav>'


def query_js(parameter: str) -> str:
    """JavaScript for a load event: the value of one parameter of the address."""
    return f"() => [new URLSearchParams(window.location.search).get('{parameter}')]"
