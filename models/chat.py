"""A chat as plain data: who said what, in turn. What exists is valid; templates are the checkpoint's own affair."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from models.errors import ChatError

MAX_MESSAGES: Final = 1000
_FIELDS: Final = {"role", "content"}


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. Its content is text, whatever is written in it."""

    role: Role
    content: str

    def as_dict(self) -> dict[str, str]:
        return {"role": self.role.value, "content": self.content}


@dataclass(frozen=True, slots=True)
class Chat:
    """At least one message."""

    messages: tuple[Message, ...]

    @classmethod
    def said(cls, content: str) -> Self:
        """What one user says first."""
        return cls.parse([{"role": Role.USER.value, "content": content}])

    @classmethod
    def parse(cls, values: Any) -> Self:
        """From plain JSON values. Raises ChatError naming the message that is wrong, counted from 1."""
        if not isinstance(values, Sequence) or isinstance(values, str | bytes):
            raise ChatError(f'messages must be a list of {{"role", "content"}} objects, not {_kind(values)}')
        if not values:
            raise ChatError("the chat has no message; give it at least one")
        if len(values) > MAX_MESSAGES:
            raise ChatError(f"the chat has {len(values):,} messages; at most {MAX_MESSAGES:,} are allowed")
        return cls(tuple(_message(number, value) for number, value in enumerate(values, start=1)))

    @classmethod
    def parse_json(cls, text: str) -> Self:
        """Like `parse`, from the text of a JSON array."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise ChatError(f"messages are not valid JSON: {exc}") from exc
        return cls.parse(values)

    @property
    def text(self) -> str:
        """All contents, a blank line between two: what a list shows and a search finds."""
        return "\n\n".join(message.content for message in self.messages)

    def as_list(self) -> list[dict[str, str]]:
        """Plain JSON values. `parse(as_list())` gives an equal value."""
        return [message.as_dict() for message in self.messages]


def prompt_text(prompt: str | Chat) -> str:
    """What a prompt says, be it raw or a chat."""
    return prompt.text if isinstance(prompt, Chat) else prompt


def prompt_messages(prompt: str | Chat) -> list[dict[str, str]] | None:
    """A chat's messages as plain JSON values; None for a raw prompt."""
    return prompt.as_list() if isinstance(prompt, Chat) else None


def _message(number: int, value: Any) -> Message:
    if not isinstance(value, dict):
        raise ChatError(f'message {number} must be an object with "role" and "content", not {_kind(value)}')
    if unknown := sorted(set(map(str, value)) - _FIELDS):
        raise ChatError(f"message {number} has a field {unknown[0]!r}; a message has role and content")
    role, content = value.get("role"), value.get("content")
    if role not in list(Role):
        raise ChatError(f"message {number} has the role {role!r}; the roles are {', '.join(Role)}")
    if not isinstance(content, str):
        raise ChatError(f"the content of message {number} must be text, not {_kind(content)}")
    for index, character in enumerate(content):
        if "\ud800" <= character <= "\udfff":
            raise ChatError(
                f"character {index} of message {number} is a lone surrogate (U+{ord(character):04X}), which is not "
                "text; remove it"
            )
    return Message(Role(role), content)


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
