"""Which text is shown when, and what is held back."""

from models.events import Ended, Prefilled, StopReason, TokenPicked
from tests.fakes.engine_runs import request, run, told
from tests.fakes.phrases import FOX, ids, saying
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
