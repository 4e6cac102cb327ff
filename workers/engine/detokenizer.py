"""Token ids become text while they arrive: pushes + flush = the whole text. Plain Python.

A push returns the text that the token completes, and never half a character. What a byte sequence that is no UTF-8
stands for is U+FFFD: inside the text once it is known to be none, at the end of the text when `flush` is called.

Special tokens have no text; pushing one returns "" and does not disturb a character begun before it.

The text continues that of the tokens before it: a character that those have begun comes with the token that completes
it, and a space at the front is taken off only where nothing stands before it.
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

    def token_bytes(self, token_id: int) -> bytes: ...

    def opening_bytes(self, token_id: int) -> bytes:
        """The same where the token begins a text."""
        ...

    def is_special(self, token_id: int) -> bool: ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a few ids, used where it is not simply their bytes."""
        ...


class Detokenizer:
    """One text that grows by tokens."""

    def __init__(self, vocabulary: TokenTexts, *, after: Sequence[int] = ()) -> None:
        """`after`: the ids before the first that will be pushed, a prompt's."""
        self._vocabulary = vocabulary
        before = [token_id for token_id in after if not vocabulary.is_special(token_id)]
        self._reader = _Bytes(vocabulary, before) if vocabulary.is_exact else _Window(vocabulary, before)

    def push(self, token_id: int) -> str:
        """The text that this token completes; "" while a character is incomplete."""
        return "" if self._vocabulary.is_special(token_id) else self._reader.push(token_id)

    def flush(self) -> str:
        """The text of what is still held: U+FFFD for bytes that never became a character, else ""."""
        return self._reader.flush()


class _Bytes:
    """Text as the UTF-8 of the tokens' bytes: one decoder that remembers a begun character."""

    def __init__(self, vocabulary: TokenTexts, before: Sequence[int]) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._is_opening = not before
        self._decoder.decode(b"".join(map(vocabulary.token_bytes, before)))

    def push(self, token_id: int) -> str:
        read = self._vocabulary.opening_bytes if self._is_opening else self._vocabulary.token_bytes
        self._is_opening = False
        return self._decoder.decode(read(token_id))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class _Window:
    """Text by decoding a short window of ids with and without the new ones: the difference is new.

    The tokens released last stay in the window as context, because a token's text may depend on its left neighbour.
    """

    # A character is at most 4 bytes; ids that still end in U+FFFD after twice as many are released as they are.
    _MAX_HELD: Final = 8

    def __init__(self, vocabulary: TokenTexts, before: Sequence[int]) -> None:
        self._vocabulary = vocabulary
        self._context: list[int] = []
        self._held: list[int] = []
        for token_id in before[-2 * self._MAX_HELD :]:
            self.push(token_id)

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
