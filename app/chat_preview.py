"""A chat as it will be sent: its template's text, the special tokens apart, and how many tokens it is."""

import re
from dataclasses import dataclass, replace
from typing import Final

from tokenizers import Tokenizer

from app.chat_rendering import rendered
from models.chat import Chat
from models.chat_template import TemplateSource, without_template
from models.presence import CheckpointInfo

_PRIVATE_USE: Final = 0xF0000  # a plane of characters without a meaning: no checkpoint writes them


@dataclass(frozen=True, slots=True)
class TemplatePiece:
    """A part of the text that is sent."""

    text: str
    is_special: bool  # one special token, which the template wrote; in a message the same spelling is text


@dataclass(frozen=True, slots=True)
class ChatPreview:
    """`num_tokens` is None where only the worker knows: a message spells a special token, which it sends as text."""

    pieces: tuple[TemplatePiece, ...]
    num_tokens: int | None


def chat_preview(
    chat: Chat, info: CheckpointInfo, template: TemplateSource | None, tokenizer: Tokenizer | None
) -> ChatPreview | None:
    """None where the template or the tokenizer is not known here, or the rendering takes too long.

    `tokenizer` parses special tokens. Raises ChatError for a checkpoint without a template and, with the template's own
    words, for a chat that it does not take.
    """
    if not info.has_chat_template:
        raise without_template(info.name)
    if template is None or tokenizer is None:
        return None
    added = (token.content for token in tokenizer.get_added_tokens_decoder().values())
    specials = sorted((content for content in added if not content.isspace()), key=len, reverse=True)
    # What a message spells is put out of sight while the template's own special tokens are looked for.
    hidden = {special: chr(_PRIVATE_USE + number) for number, special in enumerate(specials)}
    text = rendered(_replaced(chat, hidden), template, name=info.name)
    if text is None:
        return None
    shown = {ord(character): special for special, character in hidden.items()}
    pieces = tuple(TemplatePiece(part.translate(shown), part in hidden) for part in _split(text, specials) if part)
    is_exact = not any(special in message.content for message in chat.messages for special in specials)
    num_tokens = len(tokenizer.encode(text, add_special_tokens=False).ids) if is_exact else None
    return ChatPreview(pieces, num_tokens)


def _replaced(chat: Chat, hidden: dict[str, str]) -> Chat:
    messages = []
    for message in chat.messages:
        content = message.content
        for special, character in hidden.items():
            content = content.replace(special, character)
        messages.append(replace(message, content=content))
    return Chat(tuple(messages))


def _split(text: str, specials: list[str]) -> list[str]:
    """`text` in order, each special token by itself."""
    if not specials:
        return [text]
    return re.split("(" + "|".join(map(re.escape, specials)) + ")", text)
