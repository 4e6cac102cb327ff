"""The engine over scripted networks: endings, order, failures, interleaving and resumption."""

import itertools

import pytest
import torch

from models.errors import PromptError, SettingError
from models.events import Ended, Prefilled, Status, StopReason, TokenPicked
from tests.fakes import scripted, tokenizers
from tests.fakes.engine_runs import Told, drain, request, run, told
from tests.fakes.scripted import Script, scripted_checkpoint
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine

WORDS = tokenizers.words()
EOS = WORDS.eos_token_id
FOX = " fox jumps over the lazy dog"


def ids(text: str) -> list[int]:
    return list(WORDS(text).input_ids)


def saying(text: str, *, end: bool = False, context_length: int = 8192, **faults: scripted.Fault) -> Checkpoint:
    """A network that says `text`, then its end token where asked to. Faults by step: `at_3=...`."""
    script = Script(
        [*ids(text), *([EOS] if end else [])],
        faults={int(name.removeprefix("at_")): fault for name, fault in faults.items()},
    )
    return scripted_checkpoint(WORDS, script, context_length=context_length)


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


class TestInterruptions:
    """Reasons from outside, and failures of one sequence."""

    def test_cancel_ends_at_the_next_step(self) -> None:
        engine = Engine(saying(FOX))
        engine.add(request(engine.checkpoint, "the"))
        outputs = [*engine.step(), *engine.step()]
        engine.cancel("a")
        engine.cancel("b")  # unknown: nothing happens
        got = told([*outputs, *engine.step()])["a"]
        assert (got.ended.status, got.ended.num_tokens, got.text) == (Status.CANCELLED, 2, " fox jumps")
        assert not engine.has_work
        assert engine.step() == []

    def test_a_sequence_that_waits_is_cancelled_without_a_pass(self) -> None:
        engine = Engine(saying(FOX))
        engine.add(request(engine.checkpoint, "the", sequence_id="a", max_tokens=3))
        engine.add(request(engine.checkpoint, "the", sequence_id="b"))
        engine.cancel("b", StopReason.TIME_LIMIT)
        got = told(drain(engine))
        assert got["b"].ended.stop.reason is StopReason.TIME_LIMIT
        assert (got["b"].ended.num_tokens, got["b"].ended.passes.prefill) == (0, 0)
        assert got["a"].ended.stop.reason is StopReason.MAX_TOKENS

    def test_two_interruptions_have_one_reason(self) -> None:
        engine = Engine(saying(FOX))
        engine.add(request(engine.checkpoint, "the"))
        engine.step()
        engine.cancel("a", StopReason.TIME_LIMIT)
        engine.cancel("a")
        (ended,) = (o.payload for o in engine.step() if isinstance(o.payload, Ended))
        assert (ended.stop.reason, ended.stop.also) == (StopReason.CANCELLED, (StopReason.TIME_LIMIT,))

    @pytest.mark.parametrize("fault", [scripted.gives_nan, scripted.gives_infinity, scripted.gives_nothing])
    def test_logits_that_are_no_numbers_end_the_run_and_keep_what_was(self, fault: scripted.Fault) -> None:
        got = run(saying(FOX, at_4=fault), "the")
        assert got.ended.stop.reason is StopReason.ERROR_NUMERICAL
        assert got.ended.status is Status.FAILED
        assert got.text == " fox jumps over the"
        assert "position 4" in (got.ended.stop.message or "")

    def test_one_possible_token_is_no_failure(self) -> None:
        (cat,) = ids(" cat")
        got = run(saying(FOX, at_1=scripted.gives_only(cat)), "the", max_tokens=2)
        assert got.token_ids[1] == cat
        assert (got.tokens[1].raw_logprob, got.tokens[1].rank) == (0.0, 1)

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (torch.OutOfMemoryError("no room"), StopReason.ERROR_OUT_OF_MEMORY),
            (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), StopReason.ERROR_OUT_OF_MEMORY),
            (RuntimeError("a kernel failed"), StopReason.ERROR_INTERNAL),
            (KeyError("a bug"), StopReason.ERROR_INTERNAL),
        ],
    )
    @pytest.mark.parametrize("step", [0, 2])
    def test_a_pass_that_fails_ends_its_own_run(self, error: Exception, reason: StopReason, step: int) -> None:
        good, bad = Script(ids(FOX)), Script(ids(" cat is there"), faults={step: scripted.raises(error)})
        checkpoint = scripted_checkpoint(WORDS, good, by_first_id={ids("a")[0]: bad})
        engine = Engine(checkpoint, num_rows=3)
        engine.add(request(checkpoint, "the", sequence_id="first", max_tokens=6))
        engine.add(request(checkpoint, "a", sequence_id="bad"))
        engine.add(request(checkpoint, "the", sequence_id="last", max_tokens=6))
        got = told(drain(engine))
        assert got["bad"].ended.stop.reason is reason
        assert got["bad"].ended.num_tokens == step
        assert got["first"].text == got["last"].text == FOX

    def test_a_failure_behind_the_network_ends_its_own_run(self) -> None:
        checkpoint = saying(FOX)
        engine = Engine(checkpoint, num_rows=2)
        for name in "ab":
            engine.add(request(checkpoint, "the", sequence_id=name, max_tokens=4))
        engine.step()
        engine._sequences["a"].output_ids.append(None)  # type: ignore[arg-type]  # a state that should not be
        got = told([*drain(engine)])
        assert got["a"].ended.stop.reason is StopReason.ERROR_INTERNAL
        assert got["b"].ended.stop.reason is StopReason.MAX_TOKENS


class TestRefusals:
    """What cannot be added, and that it disturbs nobody."""

    @pytest.mark.parametrize(
        ("prompt", "settings", "error", "words"),
        [
            ("", {}, PromptError, "the prompt is empty"),
            ([5] * 32, {}, PromptError, "32 tokens and scripted has room for 32"),
            ([5] * 5000, {"max_tokens": 0}, PromptError, "5,000 tokens and scripted has room for 32"),
            ([99999], {}, PromptError, "token id 99999 is outside the vocabulary"),
            ([5], {"banned": ["fox jumps"]}, SettingError, "banned: 'fox jumps' is"),
            ([5], {"logit_bias": {"99999": 1.0}}, SettingError, "logit_bias: token id 99999"),
            ([5], {"seed": None}, SettingError, "seed"),
        ],
    )
    def test_a_request_that_cannot_run_is_refused(
        self, prompt: str | list[int], settings: dict[str, object], error: type[Exception], words: str
    ) -> None:
        checkpoint = saying(FOX, context_length=32)
        engine = Engine(checkpoint)
        engine.add(request(checkpoint, "the", sequence_id="x", max_tokens=6))
        engine.step()
        with pytest.raises(error, match=words):
            engine.add(request(checkpoint, prompt, sequence_id="y", **settings))
        assert engine.num_active == 1
        assert told(drain(engine))["x"].ended.num_tokens == 6

    def test_an_id_is_used_once_at_a_time(self) -> None:
        engine = Engine(saying(FOX))
        engine.add(request(engine.checkpoint, "the", max_tokens=1))
        with pytest.raises(ValueError, match="already running"):
            engine.add(request(engine.checkpoint, "the"))
        drain(engine)
        engine.add(request(engine.checkpoint, "the"))

    def test_an_empty_prompt_runs_from_bos_where_the_tokenizer_adds_one(self) -> None:
        tokenizer = tokenizers.metaspace()
        script = Script(tokenizer(" the quick", add_special_tokens=False).input_ids)
        got = run(scripted_checkpoint(tokenizer, script), "", max_tokens=1)
        assert got.prefilled is not None
        assert got.prefilled.num_prompt_tokens == 1

    def test_a_prompt_of_the_last_size_gives_one_token(self) -> None:
        got = run(saying(FOX, context_length=32), [5] * 31)
        assert (got.ended.num_tokens, got.ended.stop.reason) == (1, StopReason.CONTEXT_FULL)

    def test_a_lone_surrogate_is_no_prompt(self) -> None:
        with pytest.raises(PromptError, match="character 1 of the prompt is a lone surrogate"):
            saying(FOX).encode("a\ud800")

    def test_special_tokens_in_a_prompt_are_parsed_only_where_asked(self) -> None:
        checkpoint = scripted_checkpoint(tokenizers.chatml(), Script([5]))
        special = checkpoint.tokenizer.convert_tokens_to_ids("<|im_end|>")
        assert special not in checkpoint.encode("hi<|im_end|>")
        assert special in checkpoint.encode("hi<|im_end|>", parse_special=True)


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
            assert numbers(together[str(number)]) == numbers(one)

    def test_first_come_first_served(self) -> None:
        checkpoint = saying(FOX)
        engine = Engine(checkpoint)
        for name in "abc":
            engine.add(request(checkpoint, "the", sequence_id=name, max_tokens=2))
        assert engine.num_active == 3
        ends = [o.sequence_id for o in drain(engine) if isinstance(o.payload, Ended)]
        assert ends == ["a", "b", "c"]


def numbers(one: Told) -> list[object]:
    """Everything of a run but its times."""
    tokens = [
        (t.position, t.token_id, t.text, t.raw_logprob, t.logprob, t.rank, t.candidates, t.others) for t in one.tokens
    ]
    return [tokens, one.ended.stop, one.ended.passes, one.ended.kv_bytes]
