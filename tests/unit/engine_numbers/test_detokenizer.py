"""Pushes + flush = the whole text, for every kind of tokenizer; bytes and spellings of single tokens."""

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from tests.fakes import tokenizers
from workers.engine.detokenizer import Detokenizer
from workers.engine.vocabulary import Vocabulary

EMOJI = "a😀我👨‍👩‍👧b"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def with_decoder(decoder: Any) -> PreTrainedTokenizerFast:
    """Words and pieces of words under a given decoder, with one special token."""
    pieces = ["low", "er", "##er", "un", "low</w>", "er</w>", ".", "!", "n't", "▁low", "▁", "</w>", "日本"]
    tokenizer = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="low"))
    if decoder is not None:
        tokenizer.decoder = decoder
    tokenizer.add_special_tokens([AddedToken("[SEP]", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@functools.cache
def tokenizer(name: str) -> PreTrainedTokenizerFast:
    match name:
        case "word_piece":
            return with_decoder(decoders.WordPiece())
        case "bpe_decoder":
            return with_decoder(decoders.BPEDecoder())
        case "no_decoder":
            return with_decoder(None)
        case "plain_metaspace":
            return with_decoder(decoders.Metaspace())
        case "gemma":
            return with_decoder(
                decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
            )
        case _:
            return getattr(tokenizers, name)()  # type: ignore[no-any-return]


@functools.cache
def vocabulary(name: str) -> Vocabulary:
    return Vocabulary.from_tokenizer(tokenizer(name))


def streamed(name: str, ids: list[int], *, after: list[int] | None = None) -> str:
    detokenizer = Detokenizer(vocabulary(name), after=after or [])
    return "".join(detokenizer.push(i) for i in ids) + detokenizer.flush()


def whole(name: str, ids: list[int]) -> str:
    return tokenizer(name).decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)  # type: ignore[no-any-return]


def ids_of(name: str) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(tokenizer(name)) - 1), max_size=30)


@pytest.mark.parametrize(
    ("name", "is_exact"),
    [
        ("byte_level", True),
        ("words", True),
        ("chatml", True),
        ("metaspace", True),
        ("plain_metaspace", True),
        ("gemma", True),
        ("byte_level_in_a_sequence", True),
        ("cleaning", False),
        ("word_piece", False),
        ("bpe_decoder", False),
        ("no_decoder", False),
    ],
)
def test_which_tokenizers_are_read_exactly(name: str, is_exact: bool) -> None:
    assert vocabulary(name).is_exact is is_exact
    assert vocabulary(name).size == len(tokenizer(name))


@pytest.mark.parametrize(
    "name", ["byte_level", "words", "chatml", "cleaning", "word_piece", "bpe_decoder", "no_decoder", "gemma"]
)
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_pushes_and_flush_are_the_whole_text(name: str, data: st.DataObject) -> None:
    ids = data.draw(ids_of(name))
    assert streamed(name, ids) == whole(name, ids)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=20))
def test_byte_fallback_gives_back_any_text(text: str) -> None:
    ids = tokenizer("metaspace").encode(text, add_special_tokens=False)
    # Where the text begins, the space that the tokenizer put before its first word is not part of it.
    assert streamed("metaspace", ids) == whole("metaspace", ids)
    anchor = tokenizer("metaspace").encode("a", add_special_tokens=False)
    continued = whole("metaspace", anchor + ids).removeprefix(whole("metaspace", anchor))
    assert streamed("metaspace", ids, after=anchor) == continued


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=3) | st.sampled_from(["😀", "é", "日"]).map(str.encode), max_size=8).map(b"".join))
def test_bytes_that_are_no_text_are_replaced_as_in_one_decoding(data: bytes) -> None:
    for name, spell in [("byte_level", byte_level_ids), ("metaspace", byte_token_ids)]:
        assert streamed(name, spell(data), after=spell(b"a")) == data.decode("utf-8", "replace")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_byte_fallback_with_any_words_and_special_tokens(data: st.DataObject) -> None:
    """Byte tokens aside: where a run of them is no UTF-8, the tokenizer gives up its valid characters too."""
    ids = [i for i in data.draw(ids_of("metaspace")) if i < 3 or i >= 3 + 256]
    assert streamed("metaspace", ids) == whole("metaspace", ids)


def byte_level_ids(data: bytes) -> list[int]:
    by_bytes = {vocabulary("byte_level").token_bytes(i): i for i in range(vocabulary("byte_level").size)}
    return [by_bytes[bytes([byte])] for byte in data]


def byte_token_ids(data: bytes) -> list[int]:
    return [tokenizer("metaspace").convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in data]


def test_emoji_stream_without_half_characters() -> None:
    detokenizer = Detokenizer(vocabulary("byte_level"))
    pieces = [detokenizer.push(i) for i in tokenizer("byte_level").encode(EMOJI)]
    assert "".join(pieces) == EMOJI
    assert not any(REPLACEMENT in piece for piece in pieces)
    assert pieces[:6] == ["a", "", "", "", "😀", ""]
    assert detokenizer.flush() == ""


def test_a_cut_inside_a_character_is_one_replacement_at_the_end() -> None:
    ids = tokenizer("byte_level").encode(EMOJI)[:3]
    detokenizer = Detokenizer(vocabulary("byte_level"))
    assert [detokenizer.push(i) for i in ids] == ["a", "", ""]
    assert detokenizer.flush() == REPLACEMENT
    assert detokenizer.flush() == ""
    assert [vocabulary("byte_level").token_bytes(i) for i in ids] == [b"a", b"\xf0", b"\x9f"]


def test_spaces_between_words_stay() -> None:
    prompt = tokenizer("metaspace").encode("I saw")
    whole_ids = tokenizer("metaspace").encode("I saw the quick  brown fox")
    assert whole_ids[: len(prompt)] == prompt
    output = whole_ids[len(prompt) :]
    assert streamed("metaspace", output, after=prompt) == " the quick  brown fox"
    assert "I saw" + streamed("metaspace", output, after=prompt) == whole("metaspace", whole_ids)


def test_a_special_token_inside_a_character_does_not_disturb_it() -> None:
    end = tokenizer("chatml").convert_tokens_to_ids("<|im_end|>")
    first, *rest = tokenizer("chatml").encode("😀")
    detokenizer = Detokenizer(vocabulary("chatml"))
    assert [detokenizer.push(i) for i in [first, end, *rest]] == ["", "", "", "", "😀"]


def test_clean_up_of_spaces_never_happens() -> None:
    ids = tokenizer("cleaning").encode("the cat . the dog !", add_special_tokens=False)
    assert streamed("cleaning", ids) == "the cat . the dog !"


@pytest.mark.parametrize("name", ["byte_level", "word_piece"])
def test_the_cost_of_a_token_does_not_grow_with_the_text(name: str) -> None:
    class Counting:
        """A vocabulary that counts the ids it is asked to decode."""

        is_exact = vocabulary(name).is_exact
        token_bytes = opening_bytes = staticmethod(vocabulary(name).token_bytes)
        is_special = staticmethod(vocabulary(name).is_special)
        decoded = 0

        def decode(self, ids: Any) -> str:
            self.decoded += len(ids)
            return vocabulary(name).decode(ids)

    counting = Counting()
    detokenizer = Detokenizer(counting)
    for _ in range(2000):
        detokenizer.push(2)
    assert counting.decoded <= 2000 * 4


def test_a_window_that_never_becomes_text_is_released() -> None:
    class Broken:
        is_exact = False

        def token_bytes(self, token_id: int) -> bytes:
            return b"\xff"

        opening_bytes = token_bytes

        def is_special(self, token_id: int) -> bool:
            return False

        def decode(self, token_ids: Any) -> str:
            return REPLACEMENT * len(token_ids)

    detokenizer = Detokenizer(Broken())
    pieces = [detokenizer.push(0) for _ in range(20)]
    assert max(len(p) for p in pieces) == 8
    assert "".join(pieces) + detokenizer.flush() == REPLACEMENT * 20


def test_bytes_and_spellings_of_single_tokens() -> None:
    chatml = vocabulary("chatml")
    end = tokenizer("chatml").convert_tokens_to_ids("<|im_end|>")
    assert (chatml.token_bytes(end), chatml.spelling(end), chatml.is_special(end)) == (
        b"<|im_end|>",
        "<|im_end|>",
        True,
    )
    (the,) = tokenizer("chatml").encode(" the")
    assert (chatml.token_bytes(the), chatml.spelling(the), chatml.is_special(the)) == (b" the", " the", False)
    half = tokenizer("byte_level").encode("😀")[0]
    assert (vocabulary("byte_level").token_bytes(half), vocabulary("byte_level").spelling(half)) == (b"\xf0", "<0xF0>")
    fallback = tokenizer("metaspace").convert_tokens_to_ids("<0xF0>")
    assert (vocabulary("metaspace").token_bytes(fallback), vocabulary("metaspace").spelling(fallback)) == (
        b"\xf0",
        "<0xF0>",
    )
    mark = tokenizer("metaspace").convert_tokens_to_ids("▁the")
    assert vocabulary("metaspace").token_bytes(mark) == b" the"
    assert vocabulary("word_piece").spelling(tokenizer("word_piece").convert_tokens_to_ids("[SEP]")) == "[SEP]"


def test_ids_beyond_the_tokenizer_have_no_bytes_and_still_a_spelling() -> None:
    # A checkpoint's vocabulary may be padded to more ids than its tokenizer has.
    for name in ("byte_level", "word_piece"):
        beyond = vocabulary(name).size + 5
        assert (vocabulary(name).token_bytes(beyond), vocabulary(name).spelling(beyond)) == (b"", f"<{beyond}>")
        assert vocabulary(name).opening_bytes(beyond) == b""
        assert streamed(name, [beyond]) == ""


def test_added_tokens_are_read_as_the_tokenizer_reads_them() -> None:
    raw = tokenizers.byte_level().backend_tokenizer
    raw.add_tokens([AddedToken(text) for text in ("x y", "naïve", "日本", "ok")])
    built = PreTrainedTokenizerFast(tokenizer_object=raw)
    texts = Vocabulary.from_tokenizer(built)
    for text in ("x y", "naïve", "日本", "ok"):
        token_id = built.convert_tokens_to_ids(text)
        assert texts.token_bytes(token_id).decode("utf-8", "replace") == built.decode([token_id])
