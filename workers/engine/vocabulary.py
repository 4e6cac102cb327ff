"""What each token id stands for: its bytes, its spelling, whether it is special. Built once for a checkpoint.

Two kinds of tokenizers say exactly which bytes a token is, and their decoding joins these:

- byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM): a token is spelled in 256 printable characters, one for a byte;
- SentencePiece's way (Llama 2, Mistral, Gemma): a space is written U+2581, and `<0xF0>` is the byte F0.

Of some of these the token that begins a text loses a space there (`opening_bytes`).

With any other, a token's bytes are the UTF-8 of its text alone, and text is decoded by the tokenizer itself. Where a
run of byte tokens is no UTF-8, the second kind's own decoder writes U+FFFD for every byte of the run; here the valid
characters in it are kept.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

_SPACE_MARK: Final = "\N{LOWER ONE EIGHTH BLOCK}"
_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")

ToBytes = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class _Reading:
    """How a decoder turns the spelling of a token into bytes."""

    to_bytes: ToBytes
    opening: ToBytes  # of the token that begins a text


class Vocabulary:
    """Token ids and what they stand for. Ids run from 0 to `size` - 1; one that the tokenizer lacks has no bytes."""

    def __init__(
        self,
        tokens: dict[int, str],
        special_ids: frozenset[int],
        reading: _Reading | None,
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        """`reading` is None for a tokenizer whose decoding is not simply the tokens' bytes, joined."""
        self.size = max(tokens, default=-1) + 1
        self.is_exact = reading is not None
        self._tokens = tokens
        self._special_ids = special_ids
        self._reading = reading
        self._decode = decode
        self._spellings: dict[int, str] = {}  # those that were asked for
        self._bytes = {i: reading.to_bytes(token) for i, token in tokens.items()} if reading else {}

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> Self:
        """Read a transformers tokenizer: the parts of its backend's JSON where it has one, else through its methods."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        parts = json.loads(backend.to_str()) if backend is not None else {}
        added = parts.get("added_tokens", [])
        special = {t["id"] for t in added if t["special"]} if parts else set(tokenizer.all_special_ids)

        def decode(token_ids: Sequence[int]) -> str:
            return str(tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

        tokens = {i: token for token, i in tokenizer.get_vocab().items()}
        return cls(tokens, frozenset(special), _reading(parts.get("decoder")), decode)

    @property
    def special_tokens(self) -> list[str]:
        """The spellings of all special tokens."""
        return [self._tokens[token_id] for token_id in sorted(self._special_ids)]

    def token_bytes(self, token_id: int) -> bytes:
        """The token's own bytes, exact; of a special token its spelling's; b"" for an id that stands for nothing."""
        if token_id not in self._tokens:
            return b""
        if token_id in self._special_ids:
            return self._tokens[token_id].encode()
        return self._bytes[token_id] if self.is_exact else self._decode([token_id]).encode()

    def opening_bytes(self, token_id: int) -> bytes:
        """The token's bytes where it begins a text; a space that only marks the beginning of a word is none there."""
        if self._reading is None or token_id not in self._tokens:
            return self.token_bytes(token_id)
        return self._reading.opening(self._tokens[token_id])

    def num_opening_spaces(self, token_id: int) -> int:
        """The spaces that the token loses where it begins a text."""
        return len(self.token_bytes(token_id)) - len(self.opening_bytes(token_id))

    def spelling(self, token_id: int) -> str:
        """The token alone, for display: its text, the hexadecimal bytes of half a character, or a special's name."""
        if token_id not in self._spellings:
            self._spellings[token_id] = self._spell(token_id)
        return self._spellings[token_id]

    def _spell(self, token_id: int) -> str:
        if token_id not in self._tokens:
            return f"<{token_id}>"
        data = self.token_bytes(token_id)
        try:
            return data.decode() or self._tokens[token_id]
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in data)

    def is_special(self, token_id: int) -> bool:
        """Whether the token has no text: it controls the checkpoint (<s>, <|im_end|>, ...), or is none at all.

        A checkpoint's vocabulary is often padded to more ids than its tokenizer has.
        """
        return token_id in self._special_ids or token_id not in self._tokens

    def decode(self, token_ids: Sequence[int]) -> str:
        """The tokenizer's own text of these ids, special ones left out, spaces as they are."""
        return self._decode(token_ids)


def _reading(decoder: dict[str, Any] | None) -> _Reading | None:
    """The reading that a decoder of the backend's JSON stands for; None for one that looks at neighbours."""
    match decoder:
        case {"type": "ByteLevel"}:
            return _Reading(_byte_level, _byte_level)
        case {"type": "Sequence", "decoders": [only]}:
            return _reading(only)
        case {"type": "Sequence", "decoders": [first, *rest]}:
            return _spaces_then(first, rest)
        case None:
            return None
        case _:
            return _spaces_then(decoder, [])


def _spaces_then(first: dict[str, Any], rest: Sequence[dict[str, Any]]) -> _Reading | None:
    """A decoder that turns marks into spaces, then byte tokens into bytes, joins all, and takes a space off the front.

    Each of the latter three may be missing. Without the joining a space would be taken off every token.
    """
    left = list(rest)
    has_byte_tokens = _pop(left, {"type": "ByteFallback"})
    is_joined = _pop(left, {"type": "Fuse"})
    is_stripped = is_joined and _pop(left, {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    if left:
        return None
    match first:
        case {"type": "Replace", "pattern": {"String": mark}, "content": " "}:
            opening_space = " "
        case {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme}:
            opening_space = " " if scheme == "never" else ""
        case _:
            return None
    opening = _Spaces(mark, has_byte_tokens, space=opening_space, is_stripped=is_stripped)
    return _Reading(_Spaces(mark, has_byte_tokens), opening)


def _pop(decoders: list[dict[str, Any]], wanted: dict[str, Any]) -> bool:
    """Take `wanted` off the front; whether it was there."""
    if decoders[:1] != [wanted]:
        return False
    del decoders[0]
    return True


@dataclass(frozen=True, slots=True)
class _Spaces:
    """Spelling to bytes where spaces are written as a mark. The first token of a text may lose them all, or one."""

    mark: str
    has_byte_tokens: bool
    space: str = " "
    is_stripped: bool = False

    def __call__(self, token: str) -> bytes:
        byte = _BYTE_TOKEN.fullmatch(token) if self.has_byte_tokens else None
        data = bytes([int(byte[1], 16)]) if byte else token.replace(self.mark, self.space).encode()
        return data.removeprefix(b" ") if self.is_stripped else data


def _byte_level(token: str) -> bytes:
    """One character for a byte; a token with any other character (an added one) is text as it stands."""
    try:
        return bytes(_BYTE_OF[character] for character in token)
    except KeyError:
        return token.encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others for the characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTE_OF: Final = _byte_alphabet()
