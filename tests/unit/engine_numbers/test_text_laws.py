"""Streamed = decoded at once, for every kind of decoder, any ids and any cut (SEMANTICS 5).

Where a run of byte tokens is no UTF-8 the tokenizer's own decoder gives up the valid characters in it too, and no
stream could: the law there is that the text is the tokens' bytes, joined, as UTF-8.
"""

import functools
import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tests.fakes import decoders
from workers.engine.detokenizer import Detokenizer
from workers.engine.vocabulary import Vocabulary

JOINED = [*decoders.EXACT, *decoders.BYTE_LEVEL]
ALL = [*JOINED, *decoders.BY_WINDOW, "cleaning", "metaspace"]
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Characters of one to four bytes, joined ones, spaces of several kinds, and one that stands for what is no text.
TEXT = st.text(st.sampled_from("ab \n\t.é日本😀\u200d👩\u0301▁") | st.characters(codec="utf-8"), max_size=20)

exhaustive = settings(max_examples=50, deadline=None)


@functools.cache
def vocabulary(name: str) -> Vocabulary:
    return Vocabulary.from_tokenizer(decoders.tokenizer(name))


def any_ids(name: str) -> st.SearchStrategy[list[int]]:
    """Ids of the tokenizer, specials included, and a few beyond; half of them of the first forty, where words are."""
    last = vocabulary(name).size + 3
    return st.lists(st.integers(0, last) | st.integers(0, min(40, last)), max_size=24)


def pieces(texts: Vocabulary, ids: Sequence[int], *, after: Sequence[int] = ()) -> list[str]:
    """What each push returned, and the flush."""
    detokenizer = Detokenizer(texts, after=after)
    return [*[detokenizer.push(i) for i in ids], detokenizer.flush()]


def whole(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def has_broken_run(name: str, ids: Sequence[int]) -> bool:
    """Whether some run of byte tokens is no UTF-8, in a decoder that reads runs."""
    if name not in decoders.WITH_BYTES and name != "metaspace":
        return False
    built = decoders.tokenizer(name)
    visible = [built.convert_ids_to_tokens(i) for i in ids if not vocabulary(name).is_special(i)]
    runs = "".join(t[3:5] if re.fullmatch("<0x..>", t) else "|" for t in visible).split("|")
    return any(not is_text(bytes.fromhex(run)) for run in runs)


def is_text(data: bytes) -> bool:
    return REPLACEMENT not in data.decode("utf-8", "replace")


@pytest.mark.parametrize("name", ALL)
@exhaustive
@given(st.data())
def test_pieces_and_flush_are_the_decoding_of_all_ids(name: str, data: st.DataObject) -> None:
    ids = data.draw(any_ids(name))
    if not has_broken_run(name, ids):
        assert "".join(pieces(vocabulary(name), ids)) == whole(decoders.tokenizer(name), ids)


@pytest.mark.parametrize("name", [*JOINED, "metaspace"])
@exhaustive
@given(st.data())
def test_the_text_is_the_tokens_bytes_joined(name: str, data: st.DataObject) -> None:
    texts = vocabulary(name)
    assert texts.is_exact
    ids = [i for i in data.draw(any_ids(name)) if not texts.is_special(i)]
    # With a token in front no space is taken off, so that the record's bytes are the text's without exception.
    first = next(i for i in range(texts.size) if not texts.is_special(i) and is_text(texts.token_bytes(i)))
    joined = b"".join(texts.token_bytes(i) for i in ids).decode("utf-8", "replace")
    assert "".join(pieces(texts, ids, after=[first])) == joined


@pytest.mark.parametrize("name", ALL)
@exhaustive
@given(st.data())
def test_a_text_may_be_cut_anywhere_and_continued(name: str, data: st.DataObject) -> None:
    """What the first part released and what the second continues are the whole: a character begun before the cut
    comes after it."""
    ids = data.draw(any_ids(name))
    texts = vocabulary(name)
    at_once = pieces(texts, ids)
    for cut in range(len(ids) + 1):
        assert pieces(texts, ids[cut:], after=ids[:cut]) == at_once[cut:]


@pytest.mark.parametrize("name", [*decoders.BYTE_LEVEL, "metaspace"])
@exhaustive
@example(text="a😀我👨‍👩‍👧b")
@given(text=TEXT.filter(lambda text: REPLACEMENT not in text))
def test_no_piece_of_a_text_holds_half_a_character(name: str, text: str) -> None:
    built, texts = decoders.tokenizer(name), vocabulary(name)
    ids = built.encode("a" + text, add_special_tokens=False)
    got = pieces(texts, ids)
    assert not any(REPLACEMENT in piece for piece in got)
    assert got[-1] == ""
    assert "".join(got) == whole(built, ids)


@pytest.mark.parametrize(("name", "front"), [("byte_level", b""), ("words", b""), ("chatml", b""), ("metaspace", b" ")])
@exhaustive
@given(text=TEXT)
def test_the_records_bytes_are_the_texts(name: str, front: bytes, text: str) -> None:
    """Of a tokenizer that sets a space before every text, that space is in the first token's record."""
    ids = decoders.tokenizer(name).encode("a" + text, add_special_tokens=False)
    expected = front + ("a" + text).replace("▁", " " if front else "▁").encode()
    assert b"".join(vocabulary(name).token_bytes(i) for i in ids) == expected


@pytest.mark.parametrize("name", sorted(decoders.WITH_BYTES))
@exhaustive
@given(st.lists(st.binary(max_size=3) | st.sampled_from(["😀", "é", "日"]).map(str.encode), max_size=8).map(b"".join))
def test_bytes_that_are_no_text_lose_no_valid_neighbour(name: str, data: bytes) -> None:
    built, texts = decoders.tokenizer(name), vocabulary(name)
    anchor, *ids = [built.convert_tokens_to_ids(t) for t in ("low", *(f"<0x{byte:02X}>" for byte in data))]
    assert "".join(pieces(texts, ids, after=[anchor])) == data.decode("utf-8", "replace")


def test_a_prompt_that_ends_inside_a_character_leaves_it_to_the_output() -> None:
    ids = decoders.tokenizer("byte_level").encode("a😀b")
    assert pieces(vocabulary("byte_level"), ids[3:], after=ids[:3]) == ["", "😀", "b", ""]
    built = decoders.tokenizer("llama")
    ids = [built.convert_tokens_to_ids(t) for t in ("low", "<0xC3>", "<0xA9>")]
    assert pieces(vocabulary("llama"), ids[2:], after=ids[:2]) == ["é", ""]


def test_only_the_first_token_of_a_text_loses_its_space() -> None:
    for name, first, expected in [
        ("llama", "▁▁▁", "  "),  # one space is taken off
        ("metaspace_always", "▁▁▁", ""),  # every mark of the first token is
        ("metaspace_always", "low▁un", "lowun"),
        ("metaspace_never", "▁▁▁", "   "),
        ("gemma", "▁▁▁", "   "),
    ]:
        built, texts = decoders.tokenizer(name), vocabulary(name)
        ids = [built.convert_tokens_to_ids(t) for t in ("<s>", first, "▁low")]
        assert "".join(pieces(texts, ids)) == expected + " low" == whole(built, ids)
        assert texts.token_bytes(ids[1]).decode() == first.replace("▁", " ")


def test_ids_beyond_the_tokenizer_do_not_begin_the_text_anew() -> None:
    """A stretch of them longer than any window, between two words that a space must join."""
    for name in ("word_piece", "no_decoder"):
        built, texts = decoders.tokenizer(name), vocabulary(name)
        low, er = built.convert_tokens_to_ids(["low", "er"])
        assert "".join(pieces(texts, [low, *[texts.size + 5] * 30, er])) == "low er"
