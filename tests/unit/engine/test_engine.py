"""The engine over scripted networks: endings, account, resumption and order."""

import itertools
from dataclasses import replace

import pytest

from models.events import Ended, Prefilled, Status, StopReason
from tests.fakes.engine_runs import assert_alike, drain, request, run, told
from tests.fakes.phrases import EOS, FOX, ids, saying
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine


class TestEndings:
    """Each reason that the loop itself can have, with its evidence."""

    def test_eos_is_in_the_list_and_not_in_the_text(self) -> None:
        got = run(saying(" brown fox", end=True), "the")
        assert got.ended.stop.reason is StopReason.EOS
        assert got.ended.stop.token_id == EOS
        assert got.ended.status is Status.FINISHED
        assert got.text == " brown fox"
        last = got.tokens[-1]
        assert (last.token_id, last.visible, last.piece, last.text) == (EOS, False, "<|endoftext|>", "")

    def test_eos_on_the_last_allowed_step_is_eos(self) -> None:
        got = run(saying(" brown fox", end=True), "the", max_tokens=3)
        assert got.ended.stop.reason is StopReason.EOS
        assert got.ended.stop.also == (StopReason.MAX_TOKENS,)

    def test_ignore_eos_goes_on(self) -> None:
        got = run(saying(" brown", end=True), "the", max_tokens=4, ignore_eos=True)
        assert got.ended.stop.reason is StopReason.MAX_TOKENS
        assert got.token_ids[1:] == (EOS, EOS, EOS)
        assert got.text == " brown"

    def test_max_tokens(self) -> None:
        got = run(saying(FOX), "the", max_tokens=2)
        assert got.ended.stop.reason is StopReason.MAX_TOKENS
        assert (got.text, got.ended.num_tokens) == (" fox jumps", 2)

    def test_no_tokens_at_all(self) -> None:
        got = run(saying(FOX), "the", max_tokens=0)
        assert got.ended.stop.reason is StopReason.MAX_TOKENS
        assert (got.tokens, got.text, got.ended.passes.prefill, got.ended.passes.decode) == ((), "", 1, 0)

    def test_min_tokens_holds_the_checkpoints_end_back_and_nothing_of_the_caller(self) -> None:
        (jumps,) = ids(" jumps")
        got = run(saying(FOX), "the", stop_token_ids=[jumps], min_tokens=5, max_tokens=9)
        assert (got.ended.stop.reason, got.ended.num_tokens) == (StopReason.STOP_TOKEN, 2)

    def test_a_stop_token_ends_without_text(self) -> None:
        (jumps,) = ids(" jumps")
        got = run(saying(FOX), "the", stop_token_ids=[jumps], max_tokens=2)
        assert got.ended.stop.reason is StopReason.STOP_TOKEN
        assert got.ended.stop.token_id == jumps
        assert got.ended.stop.also == (StopReason.MAX_TOKENS,)
        assert got.text == " fox"
        assert [t.visible for t in got.tokens] == [True, False]

    def test_a_stop_string_across_a_token_boundary(self) -> None:
        got = run(saying(FOX), "the", stop=["umps ov"])
        stop = got.ended.stop
        assert (stop.reason, stop.matched, stop.span, stop.withheld) == (StopReason.STOP_STRING, "umps ov", (6, 13), 1)
        assert got.text == " fox j"
        assert [(t.piece, t.text, t.visible, t.withheld) for t in got.tokens] == [
            (" fox", " fox", True, False),
            (" jumps", " j", True, False),
            (" over", "", False, True),
        ]

    def test_a_stop_string_that_is_kept(self) -> None:
        got = run(saying(FOX), "the", stop=["umps ov"], include_stop=True)
        assert (got.text, got.ended.stop.withheld) == (" fox jumps ov", 0)
        assert got.tokens[-1].visible

    def test_the_earliest_match_wins_then_the_longer(self) -> None:
        got = run(saying(FOX), "the", stop=["s", "mps", "jump", "jumps"])
        assert got.ended.stop.matched == "jumps"
        assert got.text == " fox "

    def test_a_near_miss_is_told_and_its_text_comes_out_whole(self) -> None:
        got = run(saying(FOX), "the", stop=["jumps over a"], max_tokens=6)
        assert got.ended.stop.reason is StopReason.MAX_TOKENS
        assert got.text == FOX
        (miss,) = got.ended.stop.misses
        assert (miss.stop, miss.num_matched, miss.position) == ("jumps over a", 11, 3)

    def test_the_context_is_full(self) -> None:
        prompt = ids("the" * 5)
        got = run(saying(FOX, context_length=8), prompt, max_tokens=50)
        assert got.ended.stop.reason is StopReason.CONTEXT_FULL
        assert got.ended.num_tokens == 3

    def test_max_tokens_and_a_full_context_at_once(self) -> None:
        got = run(saying(FOX, context_length=8), ids("the" * 5), max_tokens=3)
        assert got.ended.stop.reason is StopReason.MAX_TOKENS
        assert got.ended.stop.also == (StopReason.CONTEXT_FULL,)


class TestAccount:
    """Passes, positions, bytes and times."""

    def test_a_prefill_is_one_pass_and_a_decode_one_position(self) -> None:
        checkpoint = saying(FOX)
        got = run(checkpoint, "the quick brown", max_tokens=4)
        assert checkpoint.network.num_positions == [3, 1, 1, 1]
        assert got.prefilled == Prefilled(3, 3, 1, got.prefilled.prefill_ms, checkpoint.info.kv_bytes(3))
        passes = got.ended.passes
        assert (passes.prefill, passes.decode, passes.prompt_tokens_computed) == (1, 3, 3)
        assert (got.ended.kv_positions, got.ended.kv_bytes) == (6, checkpoint.info.kv_bytes(6))

    def test_times_come_from_the_clock_that_was_given(self) -> None:
        ticks = itertools.count()
        engine = Engine(saying(FOX), clock=lambda: float(next(ticks)))
        engine.add(request(engine.checkpoint, "the", max_tokens=4))
        got = told(drain(engine))["a"]
        assert got.prefilled is not None
        assert got.prefilled.prefill_ms == got.ended.timing.prefill_ms == 1000.0
        assert [t.elapsed_ms for t in got.tokens] == [2000.0, 3000.0, 4000.0, 5000.0]
        timing = got.ended.timing
        assert (timing.decode_ms, timing.tokens_per_s) == (3000.0, 1.0)
        assert timing.itl_ms == {"p50": 1000.0, "p95": 1000.0, "p99": 1000.0}
        assert (timing.queue_ms, timing.load_ms, timing.ttft_ms) == (None, None, None)

    def test_one_token_has_no_decode_time(self) -> None:
        timing = run(saying(FOX), "the", max_tokens=1).ended.timing
        assert (timing.decode_ms, timing.tokens_per_s, timing.itl_ms) == (None, None, None)


class TestResumption:
    """A second attempt, given the saved tokens, tells the rest of the same story."""

    @pytest.mark.parametrize("num_saved", range(1, 7))
    @pytest.mark.parametrize("stop", [[], ["the lazy"], ["zy d"]])
    def test_resumed_is_uninterrupted(self, num_saved: int, stop: list[str]) -> None:
        checkpoint = saying(FOX, end=True)
        whole = run(checkpoint, "the", stop=stop)
        saved = whole.token_ids[:num_saved]
        rest = run(checkpoint, "the", stop=stop, generated=saved)
        assert saved + rest.token_ids == whole.token_ids
        assert rest.ended.stop == whole.ended.stop
        assert (rest.ended.num_tokens, rest.ended.tail) == (whole.ended.num_tokens, whole.ended.tail)
        for mine, theirs in zip(rest.tokens, whole.tokens[len(saved) :], strict=True):
            assert (mine.position, mine.text, mine.visible, mine.raw_logprob) == (
                theirs.position,
                theirs.text,
                theirs.visible,
                theirs.raw_logprob,
            )

    @pytest.mark.parametrize(
        "settings", [{}, {"max_tokens": 3}, {"stop": ["umps ov"]}, {"stop_token_ids": ids(" over")}]
    )
    def test_saved_tokens_that_had_ended_the_run_end_it_at_once(self, settings: dict[str, object]) -> None:
        checkpoint = saying(FOX, end=True)
        whole = run(checkpoint, "the", **settings)
        checkpoint.network.num_positions.clear()
        again = run(checkpoint, "the", generated=whole.token_ids, **settings)
        assert again.ended.stop == whole.ended.stop
        assert (again.prefilled, again.tokens, checkpoint.network.num_positions) == (None, (), [])

    def test_a_character_may_be_half_saved(self) -> None:
        checkpoint = saying("a😀b", end=True)
        whole = run(checkpoint, "the")
        rest = run(checkpoint, "the", generated=whole.token_ids[:3])
        assert "".join(t.text for t in (*whole.tokens[:3], *rest.tokens)) == whole.text == "a😀b"

    def test_the_prefill_computes_the_saved_tokens_too(self) -> None:
        checkpoint = saying(FOX)
        run(checkpoint, "the", generated=ids(FOX)[:4], max_tokens=6)
        assert checkpoint.network.num_positions == [5, 1]


class TestBatches:
    """Several sequences at once."""

    @pytest.mark.parametrize("num_rows", [1, 2, 5])
    def test_interleaved_sequences_are_as_alone(self, tiny: Checkpoint, num_rows: int) -> None:
        prompts = ["the quick brown", "a cat", "there is a fox in the", "dog", "see what runs from the lazy dog and"]
        options = [{"max_tokens": 4 + 3 * i, "temperature": i / 2, "top_p": 0.9, "seed": i} for i in range(5)]
        alone = [run(tiny, prompt, **settings) for prompt, settings in zip(prompts, options, strict=True)]
        engine = Engine(tiny, num_rows=num_rows)
        outputs = []
        for number, (prompt, settings) in enumerate(zip(prompts, options, strict=True)):
            engine.add(request(tiny, prompt, sequence_id=str(number), **settings))
            outputs.extend(engine.step())  # they join while others run
        together = told([*outputs, *drain(engine)])
        for number, one in enumerate(alone):
            assert_alike(together[str(number)], one)

    def test_first_come_first_served(self) -> None:
        checkpoint = saying(FOX)
        engine = Engine(checkpoint)
        for name in "abc":
            engine.add(request(checkpoint, "the", sequence_id=name, max_tokens=2))
        assert engine.num_active == 3
        ends = [o.sequence_id for o in drain(engine) if isinstance(o.payload, Ended)]
        assert ends == ["a", "b", "c"]

    def test_a_user_with_fewer_rows_goes_first(self) -> None:
        """Who asks last has no row when the second of three is given away."""
        checkpoint = saying(FOX)
        engine = Engine(checkpoint, num_rows=3)
        for name in "abcdef":
            engine.add(replace(request(checkpoint, "the", sequence_id=name, max_tokens=4), user="many"))
        engine.add(replace(request(checkpoint, "the", sequence_id="x", max_tokens=4), user="few"))
        began = [o.sequence_id for o in drain(engine) if isinstance(o.payload, Prefilled)]
        assert began == ["a", "x", "b", "c", "d", "e", "f"]
