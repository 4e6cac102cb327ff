"""Token ids become text while they arrive: pushes + flush = the whole text. Plain Python.

A push returns the text that the token completes, and never half a character. What a byte sequence that is no UTF-8
stands for is U+FFFD: inside the text once it is known to be none, at the end of the text when `flush` is called.

Special tokens have no text; pushing one returns "" and does not disturb a character begun before it.
"""

import codecs
from collections.abc import Sequence
from typing import Final, Protocol


class TokenTexts(Protocol):
    """What the detokenizer asks of a vocabulary."""

    @property
    def is_exact(self) -> bool:
        """Whether the text of any ids is their `token_bytes`, joined, as UTF-8."""
        ...

    @property
    def strips_first_space(self) -> bool:
        """Whether the space before the very first token of a text is not part of the text."""
        ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool: ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a few ids, used where it is not simply their bytes."""
        ...


class Detokenizer:
    """One text that grows by tokens."""

    def __init__(self, vocabulary: TokenTexts, *, begins_text: bool = False) -> None:
        """`begins_text`: nothing visible stands before the first token. Else the text continues a prompt, and a space
        that belongs to its first token is kept."""
        self._vocabulary = vocabulary
        self._reader = _Bytes(vocabulary, begins_text) if vocabulary.is_exact else _Window(vocabulary)

    def push(self, token_id: int) -> str:
        """The text that this token completes; "" while a character is incomplete."""
        return "" if self._vocabulary.is_special(token_id) else self._reader.push(token_id)

    def flush(self) -> str:
        """The text of what is still held: U+FFFD for bytes that never became a character, else ""."""
        return self._reader.flush()


class _Bytes:
    """Text as the UTF-8 of the tokens' bytes: one decoder that remembers a begun character."""

    def __init__(self, vocabulary: TokenTexts, begins_text: bool) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._drops_space = begins_text and vocabulary.strips_first_space

    def push(self, token_id: int) -> str:
        text = self._decoder.decode(self._vocabulary.token_bytes(token_id))
        if text and self._drops_space:
            self._drops_space = False
            return text.removeprefix(" ")
        return text

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class _Window:
    """Text by decoding a short window of ids with and without the new ones: the difference is new.

    The tokens released last stay in the window as context, because a token's text may depend on its left neighbour.
    """

    # A character is at most 4 bytes; ids that still end in U+FFFD after twice as many are released as they are.
    _MAX_HELD: Final = 8

    def __init__(self, vocabulary: TokenTexts) -> None:
        self._vocabulary = vocabulary
        self._context: list[int] = []
        self._held: list[int] = []

    def push(self, token_id: int) -> str:
        self._held.append(token_id)
        text = self._new_text()
        if len(self._held) < self._MAX_HELD and (not text or text.endswith("\N{REPLACEMENT CHARACTER}")):
            return ""
        self._context, self._held = self._held, []
        return text

    def flush(self) -> str:
        text = self._new_text() if self._held else ""
        self._held = []
        return text

    def _new_text(self) -> str:
        before = self._vocabulary.decode(self._context)
        return self._vocabulary.decode(self._context + self._held)[len(before) :]
