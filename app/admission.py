"""May this request run? Decided before anything is saved, from the request, the checkpoint's facts and its tokenizer.

A worker checks again: it has the last word where a tokenizer is not published.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from app.serving import num_prompt_tokens
from models.errors import LimitError, PromptError, SettingError
from models.grammar import check_constraint
from models.presence import CheckpointInfo
from models.sampling import Settings


class Tokenizer(Protocol):
    """The part of `tokenizers.Tokenizer` that admission uses."""

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> Any:
        """An encoding with `ids`."""

    def get_added_tokens_decoder(self) -> Mapping[int, Any]:
        """The added tokens by their ids, each with its `content`."""


def check_text(prompt: str, max_characters: int, *, field: str = "prompt") -> None:
    """Refuse what no checkpoint could take, as a prompt or as the `field` of another name.

    Raises PromptError for a value that is not text, LimitError for one that is too long.
    """
    if not isinstance(prompt, str):
        raise PromptError(f"The {field} must be text, not {type(prompt).__name__}.", field=field)
    if len(prompt) > max_characters:
        raise LimitError(
            f"The {field} has {len(prompt):,} characters; at most {max_characters:,} are allowed. Shorten it.",
            field=field,
        )
    for index, char in enumerate(prompt):
        if "\ud800" <= char <= "\udfff":
            raise PromptError(
                f"Character {index} of the {field} is a lone surrogate (U+{ord(char):04X}), which is not text; "
                "remove it.",
                field=field,
            )


def check_prompt(prompt: str, settings: Settings, info: CheckpointInfo, tokenizer: Tokenizer | None) -> int | None:
    """Tokens of a prompt that this checkpoint can continue; None without a tokenizer.

    Raises PromptError with the numbers for one that it cannot.
    """
    if not prompt and not info.adds_bos:
        raise PromptError(
            f"The prompt is empty and {info.name} has no begin-of-text token to start from; type at least one "
            "character."
        )
    if tokenizer is None:
        return None
    num_tokens = num_prompt_tokens(tokenizer, prompt, info)
    if num_tokens == 0:
        raise PromptError(f"The prompt becomes no token at all in {info.name}; type other text.")
    limit = longest_prompt(settings, info)
    if num_tokens > limit:
        raise PromptError(
            f"The prompt has {num_tokens} tokens and the context of {info.name} holds {info.context_length}, prompt and"
            f" output together; shorten the prompt to at most {limit} tokens."
        )
    return num_tokens


def longest_prompt(settings: Settings, info: CheckpointInfo) -> int:
    """Tokens that a prompt may have: the context, less one where anything is to follow."""
    return info.context_length - (1 if settings.max_tokens else 0)


def check_given_text(text: str, num_prompt: int | None, info: CheckpointInfo, tokenizer: Tokenizer | None) -> None:
    """Refuse a text that has nothing to score, or no room after its prompt of `num_prompt` tokens.

    Raises PromptError with the numbers. Where the prompt's is not known, the worker decides whether there is room.
    """
    if not text:
        raise PromptError("The text is empty; type what is to be scored.", field="text")
    if tokenizer is None:
        return
    num_text = len(tokenizer.encode(text, add_special_tokens=False).ids)
    if num_text == 0:
        raise PromptError(f"The text becomes no token at all in {info.name}; type other text.", field="text")
    if num_prompt is not None and num_prompt + num_text > info.context_length:
        raise PromptError(
            f"The prompt has {num_prompt} tokens, the text {num_text}, and the context of {info.name} holds "
            f"{info.context_length}, both together; shorten the text.",
            field="text",
        )


def check_settings(settings: Settings, info: CheckpointInfo, tokenizer: Tokenizer | None) -> None:
    """Refuse settings that name tokens this checkpoint does not have, or a constraint that cannot be used.

    Raises SettingError naming the field.

    `tokenizer` parses special tokens: a banned string may be one. Without it banned strings are left to the worker.
    """
    settings.check_vocabulary(info.vocab_size)
    if settings.constraint is not None:
        check_constraint(settings.constraint)
    if tokenizer is None:
        return
    for item in settings.banned:
        if isinstance(item, str) and (num_tokens := len(tokenizer.encode(item, add_special_tokens=False).ids)) != 1:
            raise SettingError(
                f"banned: {item!r} is {num_tokens} tokens in {info.name}; only a string that is one token can be "
                "banned (a leading space often makes the difference)",
                field="banned",
            )
