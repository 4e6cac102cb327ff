"""Status: workers, queues, running runs, latencies and failures, kept true while the page is open."""

import gradio as gr

from app.handlers import Handlers
from app.pages.controls import plain
from app.pages.frame import SHORT, STATUS_EVERY_S, frame, keep_status


def status(demo: gr.Blocks, handlers: Handlers) -> None:
    """Lay the page out inside the current Blocks context and connect it."""
    top = frame("Status")
    tables = plain('<p class="dl-hint">…</p>', "dl-overview")
    gr.on([demo.load, gr.Timer(STATUS_EVERY_S).tick], handlers.status.look, None, [tables], **SHORT)
    keep_status(demo, top, handlers)
