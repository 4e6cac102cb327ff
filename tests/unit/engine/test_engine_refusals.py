"""What cannot be added, what comes from outside, and failures that stay with their own sequence."""

import pytest
import torch

from models.errors import PromptError, SettingError
from models.events import Ended, Status, StopReason
from tests.fakes import scripted, tokenizers
from tests.fakes.engine_runs import drain, request, run, told
from tests.fakes.phrases import FOX, WORDS, ids, saying
from tests.fakes.scripted import Script, scripted_checkpoint
from workers.engine.engine import Engine


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
            (torch.AcceleratorError("CUDA error: out of memory"), StopReason.ERROR_OUT_OF_MEMORY),
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

    @pytest.mark.parametrize(
        "error",
        [
            torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
            torch.AcceleratorError("CUDA error: device-side assert triggered"),
            RuntimeError("CUDA error: unspecified launch failure"),
            RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        ],
    )
    @pytest.mark.parametrize("step", [0, 2])
    def test_a_fault_of_the_device_is_nobodys_own(self, error: Exception, step: int) -> None:
        engine = Engine(saying(FOX, **{f"at_{step}": scripted.raises(error)}))
        engine.add(request(engine.checkpoint, "the"))
        with pytest.raises(type(error), match=str(error)):
            drain(engine)

    def test_no_memory_behind_the_network_is_told_as_that(self, monkeypatch: pytest.MonkeyPatch) -> None:
        engine = Engine(saying(FOX))
        engine.add(request(engine.checkpoint, "the"))

        def no_room(*_: object) -> None:
            raise torch.OutOfMemoryError("no room")

        monkeypatch.setattr("workers.engine.judge.process", no_room)
        got = told(drain(engine))["a"]
        assert got.ended.stop.reason is StopReason.ERROR_OUT_OF_MEMORY

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

    def test_a_prompt_that_fills_the_context_can_be_read_but_not_continued(self) -> None:
        got = run(saying(FOX, context_length=32), [5] * 32, max_tokens=0)
        assert (got.ended.stop.reason, got.ended.kv_positions) == (StopReason.MAX_TOKENS, 32)
        with pytest.raises(PromptError, match="33 tokens"):
            run(saying(FOX, context_length=32), [5] * 33, max_tokens=0)

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
