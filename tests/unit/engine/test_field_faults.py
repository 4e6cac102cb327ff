"""Faults of text and endings that users of similar programs reported, each against the engine.

4, 5 and 17 are in test_chat.py; the settings that are no numbers (8) in the settings' own tests.
"""

import pytest

from models.errors import PromptError, SettingError
from models.events import StopReason
from models.sampling import Settings
from tests.fakes import scripted, tokenizers
from tests.fakes.chats import chat_tokenizer
from tests.fakes.engine_runs import drain, request, run, told
from tests.fakes.phrases import EOS, FOX, ids, saying
from tests.fakes.scripted import Script, scripted_checkpoint
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine

EMOJI = "a😀我👨‍👩‍👧b"


def of_bytes(text: str, *, context_length: int = 8192) -> Checkpoint:
    """A network that says `text`, one token a byte, whose tokenizer has neither BOS nor an end token."""
    tokenizer = tokenizers.byte_level()
    script = Script(tokenizer(text).input_ids or [0])
    return scripted_checkpoint(tokenizer, script, context_length=context_length)


class TestStopStringOverSeveralTokens:
    """1: it was streamed piece by piece before it was recognised."""

    def test_nothing_of_it_comes_out(self) -> None:
        got = run(saying(" ABCDEFGHIJ tail"), "Here is the English alphabet:", stop=["DEFGHIJ"], max_tokens=20)
        assert (got.text, got.ended.stop.reason, got.ended.stop.matched) == (" ABC", StopReason.STOP_STRING, "DEFGHIJ")
        assert [t.withheld for t in got.tokens] == [t.piece in "DEFGHIJ" for t in got.tokens]
        assert b"".join(t.token_bytes for t in got.tokens) == b" ABCDEFGHIJ"

    def test_what_was_held_comes_out_when_it_is_none(self) -> None:
        text = " ABCDEFGHI!"
        got = run(saying(text), "Here is the English alphabet:", stop=["DEFGHIJ"], max_tokens=len(ids(text)))
        assert (got.text, got.ended.stop.reason) == (text, StopReason.MAX_TOKENS)
        assert [(m.stop, m.num_matched) for m in got.ended.stop.misses] == [("DEFGHIJ", 6)]


class TestCharactersOfSeveralTokens:
    """2: they were lost or shown as boxes."""

    def test_they_come_whole(self) -> None:
        got = run(of_bytes(EMOJI), "x", max_tokens=len(EMOJI.encode()))
        assert got.text == EMOJI
        assert not any("\ufffd" in token.piece + token.text for token in got.tokens)
        assert b"".join(token.token_bytes for token in got.tokens) == EMOJI.encode()

    def test_one_that_is_cut_off_is_shown_once_and_kept(self) -> None:
        got = run(of_bytes("a😀"), "x", max_tokens=3)
        assert (got.text, got.ended.tail, got.ended.stop.reason) == ("a\ufffd", "\ufffd", StopReason.MAX_TOKENS)
        assert [token.token_bytes for token in got.tokens] == [b"a", b"\xf0", b"\x9f"]

    def test_one_that_the_prompt_began_comes_with_the_token_that_ends_it(self) -> None:
        """As in a branch inside a character."""
        whole = tokenizers.byte_level()("x😀y").input_ids
        checkpoint = scripted_checkpoint(tokenizers.byte_level(), Script(whole[3:]))
        got = run(checkpoint, whole[:3], max_tokens=3)
        assert (got.text, [token.piece for token in got.tokens]) == ("😀y", ["", "😀", "y"])


def test_3_spaces_of_words_stay() -> None:
    tokenizer = tokenizers.metaspace()
    prompt, whole = (tokenizer(text).input_ids for text in ("I saw", "I saw the quick  brown fox"))
    assert whole[: len(prompt)] == prompt
    checkpoint = scripted_checkpoint(tokenizer, Script(whole[len(prompt) :]))
    got = run(checkpoint, "I saw", max_tokens=len(whole) - len(prompt))
    assert got.text == " the quick  brown fox"
    assert "I saw" + got.text == tokenizer.decode(whole, skip_special_tokens=True)


def test_4_the_ids_that_are_told_are_those_that_were_computed() -> None:
    tokenizer = chat_tokenizer("llama_2")
    checkpoint = scripted_checkpoint(tokenizer, Script(tokenizer("the").input_ids[1:]))
    prompt = checkpoint.encode("<s>the fox", parse_special=True)
    got = run(checkpoint, prompt, max_tokens=1)
    assert got.prefilled is not None
    assert got.prefilled.num_prompt_tokens == len(prompt)
    assert prompt.count(1) == 1


@pytest.mark.parametrize("prompt", [" ", "\n", "\u200b"])
def test_6_an_empty_prompt_disturbs_nobody(prompt: str) -> None:
    engine = Engine(of_bytes("hello"), num_rows=2)
    engine.add(request(engine.checkpoint, "x", sequence_id="long", max_tokens=5))
    outputs = engine.step()
    with pytest.raises(PromptError, match="empty"):
        engine.add(request(engine.checkpoint, "", sequence_id="empty"))
    engine.add(request(engine.checkpoint, prompt, sequence_id="blank", max_tokens=2))
    outputs += drain(engine)
    engine.add(request(engine.checkpoint, "x", sequence_id="next", max_tokens=1))
    got = told([*outputs, *drain(engine)])
    assert {name: run.text for name, run in got.items()} == {"long": "hello", "blank": "he", "next": "h"}


class TestContext:
    """7: a prompt longer than the context was cut in silence."""

    @pytest.mark.parametrize("num_tokens", [128, 129, 5000])
    def test_a_prompt_without_room_is_refused_with_both_numbers(self, num_tokens: int) -> None:
        engine = Engine(of_bytes("a", context_length=128))
        with pytest.raises(PromptError, match=f"{num_tokens:,} tokens .* room for 128"):
            engine.add(request(engine.checkpoint, "x" * num_tokens, max_tokens=8))
        assert not engine.has_work

    @pytest.mark.parametrize(("num_prompt", "max_tokens", "num_new"), [(127, 8, 1), (120, 50, 8), (120, 8, 8)])
    def test_a_full_context_ends_the_run(self, num_prompt: int, max_tokens: int, num_new: int) -> None:
        got = run(of_bytes("a", context_length=128), "x" * num_prompt, max_tokens=max_tokens)
        assert got.ended.num_tokens == num_new
        by_budget = num_new == max_tokens
        assert got.ended.stop.reason is (StopReason.MAX_TOKENS if by_budget else StopReason.CONTEXT_FULL)
        assert got.ended.stop.also == ((StopReason.CONTEXT_FULL,) if by_budget else ())


class TestBudget:
    """8: no new tokens crashed the server."""

    def test_none_and_one(self) -> None:
        none = run(saying(FOX), "the", max_tokens=0)
        assert (none.tokens, none.text, none.ended.stop.reason) == ((), "", StopReason.MAX_TOKENS)
        assert len(run(saying(FOX), "the", max_tokens=1).tokens) == 1

    @pytest.mark.parametrize("value", [-1, 1_000_000_000, 1e9, "5", 2.5, None, True])
    def test_what_is_no_budget_is_refused_by_name(self, value: object) -> None:
        with pytest.raises(SettingError, match=r"^max_tokens: ") as refused:
            Settings.parse({"max_tokens": value})
        assert refused.value.field == "max_tokens"


ENDS = [*ids(FOX), EOS]


@pytest.mark.parametrize(
    ("settings", "reason", "also"),
    [
        ({"max_tokens": len(ENDS) + 5}, StopReason.EOS, ()),
        ({"max_tokens": len(ENDS)}, StopReason.EOS, (StopReason.MAX_TOKENS,)),
        ({"max_tokens": len(ENDS) - 1}, StopReason.MAX_TOKENS, ()),
        (
            {"max_tokens": len(ENDS), "stop_token_ids": [EOS]},
            StopReason.EOS,
            (StopReason.STOP_TOKEN, StopReason.MAX_TOKENS),
        ),
        (
            {"max_tokens": len(ENDS), "stop_token_ids": [EOS], "ignore_eos": True},
            StopReason.STOP_TOKEN,
            (StopReason.MAX_TOKENS,),
        ),
        ({"max_tokens": len(ENDS) - 1, "stop": ["dog"]}, StopReason.STOP_STRING, (StopReason.MAX_TOKENS,)),
        ({"max_tokens": len(ENDS), "stop": ["dog"]}, StopReason.STOP_STRING, ()),
    ],
)
def test_18_one_reason_ends_a_run_and_the_others_are_told(
    settings: dict[str, object], reason: StopReason, also: tuple[StopReason, ...]
) -> None:
    got = run(saying(FOX, end=True), "the", **settings)
    assert (got.ended.stop.reason, got.ended.stop.also) == (reason, also)
    is_used = got.ended.num_tokens == settings["max_tokens"]
    assert is_used == (StopReason.MAX_TOKENS in (reason, *also))


def test_18_an_error_is_no_budget() -> None:
    got = run(saying(FOX, at_2=scripted.gives_nan), "the", max_tokens=3)
    assert (got.ended.stop.reason, got.ended.stop.also) == (StopReason.ERROR_NUMERICAL, ())
    assert got.ended.num_tokens == 2
