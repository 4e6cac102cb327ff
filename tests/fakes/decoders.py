"""Tokenizers for decoding alone: one small vocabulary under every kind of decoder that the field uses."""

import functools
from collections.abc import Callable
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from tests.fakes import tokenizers

SPECIAL: Final = ("<s>", "[SEP]")
_WORDS: Final = ["low", "er", "##er", "un", "low</w>", "er</w>", "</w>", ".", "!", "n't", " 's", "\ufffd", "é", "日本"]
_SPACED: Final = ["▁", "▁▁", "▁▁▁", "▁low", "low▁un", "er▁", "▁日本"]
_BYTES: Final = [f"<0x{byte:02X}>" for byte in range(256)]
_STRIP: Final = decoders.Strip(content=" ", left=1, right=0)


def _sequence(*parts: Any) -> Any:
    return decoders.Sequence(list(parts))


EXACT: Final[dict[str, Callable[[], Any]]] = {
    "llama": lambda: _sequence(decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), _STRIP),
    "gemma": lambda: _sequence(decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()),
    "replace_alone": lambda: decoders.Replace("▁", " "),
    "metaspace_always": lambda: decoders.Metaspace(prepend_scheme="always"),
    "metaspace_first": lambda: decoders.Metaspace(prepend_scheme="first"),
    "metaspace_never": lambda: decoders.Metaspace(prepend_scheme="never"),
    "metaspace_then_bytes": lambda: _sequence(decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()),
    "metaspace_then_strip": lambda: _sequence(
        decoders.Metaspace(prepend_scheme="never"), decoders.ByteFallback(), decoders.Fuse(), _STRIP
    ),
}
"""Decoding is the tokens' bytes, joined, but for a space at the very front."""

BY_WINDOW: Final[dict[str, Callable[[], Any]]] = {
    "word_piece": lambda: decoders.WordPiece(cleanup=False),
    "word_piece_cleanup": lambda: decoders.WordPiece(),
    "bpe_decoder": lambda: decoders.BPEDecoder(),
    "no_decoder": lambda: None,
    "fuse": lambda: decoders.Fuse(),
    "strip_of_every_token": lambda: _sequence(decoders.Replace("▁", " "), _STRIP),
}
"""Decoding looks at neighbours, or is not known."""

WITH_BYTES: Final = frozenset({"llama", "gemma", "metaspace_then_bytes", "metaspace_then_strip"})
BYTE_LEVEL: Final = ("byte_level", "words", "chatml", "added")


@functools.cache
def tokenizer(name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of that kind; a name of `tests.fakes.tokenizers` is one as well."""
    if name in EXACT or name in BY_WINDOW:
        return _with_decoder((EXACT | BY_WINDOW)[name]())
    return added() if name == "added" else getattr(tokenizers, name)()  # type: ignore[no-any-return]


def added() -> PreTrainedTokenizerFast:
    """Byte-level, and added tokens of every sort: special or not, taking the spaces beside them, normalized."""
    backend = tokenizers.words().backend_tokenizer
    backend.add_tokens(
        [AddedToken("    "), AddedToken("x y"), AddedToken("naïve", normalized=True), AddedToken("日本")]
    )
    backend.add_tokens([AddedToken("<think>", lstrip=True, rstrip=True)])
    backend.add_special_tokens([AddedToken("<|turn|>", lstrip=True), AddedToken("<|end|>", rstrip=True)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>")


def _with_decoder(decoder: Any) -> PreTrainedTokenizerFast:
    pieces = [*_WORDS, *_SPACED, *_BYTES]
    built = Tokenizer(models.WordLevel({piece: index for index, piece in enumerate(pieces)}, unk_token="low"))
    if decoder is not None:
        built.decoder = decoder
    built.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return PreTrainedTokenizerFast(tokenizer_object=built)
