"""Which text is shown when, and what is held back."""

from models.events import Ended, Prefilled, StopReason, TokenPicked
from tests.fakes.engine_runs import request, run, told
from tests.fakes.phrases import EOS, FOX, ids, saying
from workers.engine.engine import Engine


class TestHoldingBack:
    """Text that could become a stop string is not shown, and is not lost."""

    def test_nothing_of_a_stop_string_is_ever_shown(self) -> None:
        engine = Engine(saying(" ABCDEFGHIJ tail"))
        engine.add(request(engine.checkpoint, "the", stop=["DEFGHIJ"]))
        shown = ""
        while engine.has_work:
            for output in engine.step():
                if isinstance(output.payload, TokenPicked):
                    shown += output.payload.text
            assert not set(shown) & set("DEFGHIJ")
        assert shown == " ABC"

    def test_without_stop_strings_every_step_shows_its_token(self) -> None:
        engine = Engine(saying(FOX))
        engine.add(request(engine.checkpoint, "the", max_tokens=6))
        kinds = [[type(o.payload) for o in engine.step()] for _ in range(6)]
        assert kinds == [[Prefilled, TokenPicked], *[[TokenPicked]] * 4, [TokenPicked, Ended]]

    def test_only_the_tail_that_can_still_match_is_held(self) -> None:
        engine = Engine(saying(" the dog and the cat"))
        engine.add(request(engine.checkpoint, "a", stop=["dog and they"], max_tokens=5))
        shown = [[o.payload.text for o in engine.step() if isinstance(o.payload, TokenPicked)] for _ in range(5)]
        assert shown == [[" the"], [], [], [], [" dog", " and", " the", " cat"]]

    def test_a_character_of_several_tokens_that_is_a_stop_string(self) -> None:
        got = run(saying("a😀b"), "the", stop=["😀"])
        assert got.text == "a"
        assert got.ended.stop.reason is StopReason.STOP_STRING
        assert [t.withheld for t in got.tokens] == [False, True, True, True, True]
        assert got.ended.stop.withheld == 4

    def test_a_character_of_several_tokens_is_shown_whole(self) -> None:
        text = "a😀我👨‍👩‍👧b"
        got = run(saying(text), "the", max_tokens=len(ids(text)))
        assert got.text == text
        assert all("\ufffd" not in t.piece for t in got.tokens)
        assert b"".join(t.token_bytes for t in got.tokens) == text.encode()

    def test_a_character_that_is_cut_off_is_shown_once_at_the_end(self) -> None:
        got = run(saying("a😀"), "the", max_tokens=3)
        assert got.ended.stop.reason is StopReason.MAX_TOKENS
        assert got.ended.tail == "\ufffd"
        assert b"".join(t.token_bytes for t in got.tokens) == b"a" + "😀".encode()[:2]

    def test_what_is_held_comes_out_when_the_run_is_cancelled(self) -> None:
        engine = Engine(saying(FOX))
        engine.add(request(engine.checkpoint, "the", stop=["fox jumps over the lazy cat"]))
        outputs = [*engine.step(), *engine.step()]
        assert not any(isinstance(o.payload, TokenPicked) for o in outputs)
        engine.cancel("a")
        got = told([*outputs, *engine.step()])["a"]
        assert got.text == " fox jumps"
        assert got.ended.stop.reason is StopReason.CANCELLED


class TestStopStrings:
    """What counts as a match: the same characters, wherever tokens and letters begin and end."""

    def test_an_accent_of_its_own_is_a_character(self) -> None:
        got = run(saying("cafe\u0301 au"), "the", stop=["\u0301"])
        assert (got.text, got.ended.stop.span, got.ended.stop.withheld) == ("cafe", (4, 5), 2)

    def test_a_letter_with_its_accent_is_another_one_than_both_together(self) -> None:
        text = "cafe\u0301 au"
        got = run(saying(text), "the", stop=["\u00e9"], max_tokens=len(ids(text)))
        assert (got.text, got.ended.stop.reason) == (text, StopReason.MAX_TOKENS)

    def test_a_part_of_a_joined_emoji_ends_before_it(self) -> None:
        got = run(saying("👨\u200d👩\u200d👧b"), "the", stop=["👩"])
        assert got.text == "👨\u200d"

    def test_of_overlapping_strings_that_stay_the_first_and_longest_ends_the_text(self) -> None:
        got = run(saying(FOX), "the", stop=["jumps", "umps o", "s", "jump"], include_stop=True)
        assert (got.text, got.ended.stop.matched) == (" fox jumps", "jumps")

    def test_the_name_of_an_end_token_is_no_text(self) -> None:
        got = run(saying(" fox", end=True), "the", stop=["<|endoftext|>", "endof"])
        assert (got.ended.stop.reason, got.ended.stop.also, got.text) == (StopReason.EOS, (), " fox")

    def test_half_a_character_at_the_end_is_no_match_of_its_substitute(self) -> None:
        got = run(saying("a😀"), "the", stop=["\ufffd"], max_tokens=3)
        assert (got.ended.stop.reason, got.ended.tail) == (StopReason.MAX_TOKENS, "\ufffd")


class TestMinimum:
    """min_tokens beside the other rules: it holds back the checkpoint's end tokens and nothing else."""

    def test_an_end_token_that_is_the_callers_stop_token_is_held_back_too(self) -> None:
        got = run(saying(" fox", end=True), "the", min_tokens=3, ignore_eos=True, stop_token_ids=[EOS])
        assert (got.ended.stop.reason, got.ended.num_tokens) == (StopReason.STOP_TOKEN, 4)

    def test_a_minimum_above_the_budget_is_the_budget(self) -> None:
        got = run(saying(" fox", end=True), "the", min_tokens=99, max_tokens=3)
        assert (got.ended.stop.reason, got.ended.num_tokens, EOS in got.token_ids) == (StopReason.MAX_TOKENS, 3, False)

    def test_a_stop_string_does_not_wait_for_the_minimum(self) -> None:
        got = run(saying(FOX), "the", stop=["jumps"], min_tokens=9)
        assert (got.ended.stop.reason, got.text) == (StopReason.STOP_STRING, " fox ")
