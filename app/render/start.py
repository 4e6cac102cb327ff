"""What stood on the playground, run or not: a comparison begins with it, and the playground when it is opened again."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from app.chat_preview import ChatPreview
from app.render.arms import Head
from app.render.controls import BUDGET, CONTROLS
from app.render.form import Form
from app.render.text import sendable
from models.chat import Chat
from models.errors import RefusedError

_BUDGET = frozenset(control.field for control in BUDGET)


@dataclass(frozen=True, slots=True)
class Start:
    """The texts of the forms as they were, right or wrong; `chat` is there where the prompt is one."""

    prompt: str
    chat: Chat | None
    checkpoint: str | None  # whose template the chat is for
    form: Form
    budget: Form

    @classmethod
    def parse(cls, text: str) -> "Start":
        """The JSON of an address. Raises RefusedError for what is none, ChatError for messages that are no chat."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise RefusedError("The link's prompt and settings are damaged; make it again on the playground.")
        messages = values.get("messages")
        return cls(
            prompt=_text(values.get("prompt")),
            chat=None if messages is None else Chat.parse(messages),
            checkpoint=_text(values.get("checkpoint")) or None,
            form=_form(values.get("form"), of=CONTROLS.keys() - _BUDGET),
            budget=_form(values.get("budget"), of=_BUDGET),
        )

    def head(self, preview: ChatPreview | None = None) -> Head:
        """Prompt, the arms' form and budget; the settings are those of both first arms.

        A chat is filled in as its template sends it (`preview`), special tokens and all, as a comparison has one text.
        """
        prompt, form = self.prompt, self.form
        if preview is not None:
            prompt = "".join(piece.text for piece in preview.pieces)
            form = {**form, "parse_special": "on"}
        return prompt, {"arms": [form, dict(form)], "sweep": [], "seeds": "1", "noise": ""}, self.budget


def _form(values: Any, *, of: Collection[str]) -> Form:
    if not isinstance(values, Mapping):
        return {}
    return {field: _text(text) for field, text in values.items() if field in of and isinstance(text, str)}


def _text(value: Any) -> str:
    return sendable(value) if isinstance(value, str) else ""
