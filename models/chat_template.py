"""What web process and worker both know of chat templates: the published source, and how a failure is told."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Self

from jinja2.exceptions import TemplateError, TemplateSyntaxError

from models.errors import ChatError


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """All that a chat's rendering needs but the chat."""

    template: str  # Jinja, as transformers' `get_chat_template` gives it
    special_tokens: Mapping[str, str]  # by their names in a template, such as "bos_token"

    def encode(self) -> bytes:
        # Escaped by the standard library: a template file may hold lone surrogates, which orjson refuses.
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read back `encode`'s output; fields of a newer worker are ignored. Raises ValueError for anything else."""
        values = json.loads(data)
        try:
            template, special_tokens = values["template"], dict(values["special_tokens"])
        except (KeyError, TypeError) as exc:
            raise ValueError(f"this is no chat template: {exc!r}") from exc
        if not all(isinstance(text, str) for text in (template, *special_tokens.values())):
            raise ValueError("this is no chat template: it is not text")
        return cls(template, special_tokens)

    @property
    def digest(self) -> str:
        """SHA-256 of what `encode` gives, hex."""
        return hashlib.sha256(self.encode()).hexdigest()


def without_template(name: str) -> ChatError:
    """What a chat with the checkpoint `name` meets, where that has no template."""
    return ChatError(f"{name} has no chat template; use a raw prompt, or a checkpoint that has one")


@contextmanager
def failures_told(name: str) -> Iterator[None]:
    """Around a rendering by the template of the checkpoint `name`: raises ChatError with the template's own words."""
    try:
        yield
    except TemplateSyntaxError as exc:
        raise ChatError(
            f"the chat template of {name} has a fault in line {exc.lineno}: {exc.message}; use a raw prompt"
        ) from exc
    except TemplateError as exc:
        raise ChatError(f"the chat template of {name} does not take this chat: {exc.message}") from exc
    except Exception as exc:
        raise ChatError(f"the chat template of {name} failed: {exc}; use a raw prompt") from exc
