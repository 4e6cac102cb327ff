"""The prompt as a chat: what the editor begins with, and the rendered template."""

from typing import Any, Final

from app.chat_preview import ChatPreview
from app.render.text import count, esc

MAX_SHOWN_CHARACTERS: Final = 20_000

EDITOR: Final = (
    '<div class="dl-chat"><div class="dl-modes" role="radiogroup" aria-label="kind of prompt">'
    '<button type="button" role="radio" data-mode="completion" aria-checked="true">completion</button>'
    '<button type="button" role="radio" data-mode="chat" aria-checked="false">chat</button></div>'
    '<ol class="dl-messages" aria-label="messages" hidden></ol>'
    '<p class="dl-messages-foot" hidden><button type="button" class="dl-link" data-add-message>add message</button>'
    '<span class="dl-soft">the assistant speaks next</span></p></div>'
)

Editor = dict[str, Any]
"""The editor's value: `mode` ("completion" or "chat") and `messages` of `role` and `content`."""


def editor_of(messages: list[Any] | None) -> Editor:
    """The editor for a saved run: its messages, or completion for a raw prompt."""
    return {"mode": "completion", "messages": []} if messages is None else {"mode": "chat", "messages": messages}


def is_chat(editor: Editor | None) -> bool:
    return (editor or {}).get("mode") == "chat"


def template_shown(preview: ChatPreview | None) -> str:
    """The text that is sent, special tokens as chips, in a fold."""
    if preview is None:
        return '<p class="dl-hint">The template is not published here; the worker renders the chat.</p>'
    tokens = "" if preview.num_tokens is None else f" · {count(preview.num_tokens, 'token')}"
    left = MAX_SHOWN_CHARACTERS
    shown = []
    for piece in preview.pieces:
        text = esc(piece.text[:left])
        shown.append(f'<span class="dl-chip">{text}</span>' if piece.is_special else text)
        left -= len(piece.text)
        if left <= 0:
            shown.append(f'<span class="dl-soft"> … the first {count(MAX_SHOWN_CHARACTERS, "character")}</span>')
            break
    spelled = ""
    if preview.num_tokens is None:
        spelled = '<p class="dl-soft">A message spells a special token; there it is sent as plain text.</p>'
    return (
        f'<details class="dl-fold dl-template"><summary>as the template sends it<span class="dl-soft">{tokens}</span>'
        '</summary><div class="dl-sent" tabindex="0" role="region" aria-label="rendered template">'
        f"{''.join(shown)}</div>"
        f"{spelled}</details>"
    )
