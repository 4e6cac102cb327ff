"""History: the saved runs in one table, with search, filters, sorting and what can be done with several at once."""

import gradio as gr

from app.handlers import Handlers
from app.pages.controls import history_component
from app.pages.frame import frame, keep_status


def history(demo: gr.Blocks, handlers: Handlers, checkpoints: tuple[str, ...]) -> None:
    """Lay the page out inside the current Blocks context and connect it."""
    top = frame("History")
    history_component(checkpoints, handlers.history.functions())
    keep_status(demo, top, handlers)
