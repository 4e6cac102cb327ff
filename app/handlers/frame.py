"""What every page does: the line about the checkpoint, and the count of the prompt's tokens."""

import gradio as gr

from app.parts import Parts
from app.render import notices
from app.render.form import Form
from app.streaming import SKIP, Update
from models.errors import DecodeLabError


class FrameHandlers:
    """The events of the frame."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def status(self, checkpoint: str | None) -> Update:
        """Who serves what: the line at the top, and the list to choose from."""
        try:
            workers = self._parts.serving.workers()
        except DecodeLabError as exc:
            return notices.broken_line(exc), SKIP
        names = sorted({w.checkpoint.name for w in workers})
        chosen = checkpoint if checkpoint in names or not names else names[0]
        choice = gr.update(choices=names, value=chosen, visible=len(names) > 1) if names else SKIP
        return notices.checkpoint_line(workers, chosen), choice

    def count_tokens(self, prompt: str, form: Form, checkpoint: str | None) -> str:
        """How many tokens the prompt has; a dash where nobody can tell."""
        try:
            name = checkpoint or self._parts.serving.workers()[0].checkpoint.name
            parse_special = (form or {}).get("parse_special") == "on"
            number = self._parts.serving.count_tokens(name, prompt or "", parse_special=parse_special)
            return notices.token_count(number, self._parts.serving.info(name).context_length)
        except (DecodeLabError, IndexError):
            return notices.token_count(None, None)
