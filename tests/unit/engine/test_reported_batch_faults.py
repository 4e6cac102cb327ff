"""Faults that users of similar programs reported, of runs that share an engine: each must be as it is alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.events import StopReason
from tests.fakes import checkpoints, scripted
from tests.fakes.engine_runs import Told, assert_alike, assert_alike_tokens, drain, request, run, told
from tests.fakes.phrases import FOX, WORDS, ids
from tests.fakes.scripted import Script, scripted_checkpoint
from workers.engine.cache import GrowingLayer
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine
from workers.engine.fused import FusedNetwork
from workers.engine.ragged import Pass, RaggedNetwork

LENGTHS = {"short": 3, "middle": 17, "long": 60}
NUM_TOKENS = 20
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": NUM_TOKENS, "ignore_eos": True}


def prompt_of(length: int) -> list[int]:
    """Ids in which no two prompts begin alike."""
    return [(7 * length + 13 * i) % 450 for i in range(length)]


def numbers(one: Told) -> list[Any]:
    return [(t.token_id, t.text, t.raw_logprob, t.candidates) for t in one.tokens]


@pytest.fixture
def engine(tiny: Checkpoint) -> Engine:
    return Engine(tiny, num_rows=4)


def test_prompts_of_any_length_are_as_alone_while_others_join_and_leave(tiny: Checkpoint, engine: Engine) -> None:
    for name, length in LENGTHS.items():
        engine.add(request(tiny, prompt_of(length), sequence_id=name, **GREEDY))
    outputs = []
    for step in range(9):
        if step == 5:
            engine.add(request(tiny, prompt_of(30), sequence_id="late", **GREEDY))
        outputs += engine.step()
    engine.cancel("short")
    got = told([*outputs, *drain(engine)])
    assert got["short"].ended.stop.reason is StopReason.CANCELLED
    for name, length in {**LENGTHS, "late": 30}.items():
        num_tokens = 9 if name == "short" else NUM_TOKENS
        assert len(got[name].tokens) == num_tokens
        assert_alike_tokens(got[name].tokens, run(tiny, prompt_of(length), **GREEDY).tokens[:num_tokens])


def test_transformers_agrees_with_each_of_them(tiny: Checkpoint, engine: Engine) -> None:
    for name, length in LENGTHS.items():
        engine.add(request(tiny, prompt_of(length), sequence_id=name, **GREEDY))
    got = told(drain(engine))
    for name, length in LENGTHS.items():
        prompt = prompt_of(length)
        whole = torch.tensor([[*prompt, *got[name].token_ids]])
        with torch.inference_mode():
            made = tiny.network.generate(
                input_ids=whole[:, :length],
                attention_mask=torch.ones(1, length, dtype=torch.int64),
                do_sample=False,
                min_new_tokens=NUM_TOKENS,
                max_new_tokens=NUM_TOKENS,
                eos_token_id=511,  # none of the tokens it says
                pad_token_id=0,
            )
            logprobs = tiny.network(input_ids=whole).logits[0].double().log_softmax(-1)
        assert made.tolist() == whole.tolist()
        for place, token in enumerate(got[name].tokens, start=length - 1):
            assert token.raw_logprob == pytest.approx(float(logprobs[place, token.token_id]), abs=1e-4)


@pytest.mark.parametrize("fault", [scripted.gives_nan, scripted.gives_infinity, scripted.gives_nothing])
def test_a_row_of_no_numbers_ends_alone(fault: scripted.Fault) -> None:
    good, bad = Script(ids(FOX)), Script(ids(" cat is there in a dog"), faults={4: fault})
    checkpoint = scripted_checkpoint(WORDS, good, by_first_id={ids("a")[0]: bad})
    prompts = {"1": "the", "2": "a", "3": "the the", "4": " the"}
    engine = Engine(checkpoint, num_rows=4)
    for name, prompt in prompts.items():
        engine.add(request(checkpoint, prompt, sequence_id=name, max_tokens=6))
    got = told(drain(engine))
    assert (got["2"].ended.stop.reason, got["2"].text) == (StopReason.ERROR_NUMERICAL, " cat is there in")
    assert [t.position for t in got["2"].tokens] == [0, 1, 2, 3]
    for name in "134":
        assert numbers(got[name]) == numbers(run(checkpoint, prompts[name], max_tokens=6))
        assert got[name].ended.stop.reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_half_precision_beside_a_long_prompt_gives_numbers(tmp_path: Path, kind: str, dtype: str) -> None:
    write = {"llama": checkpoints.write_llama, "gpt2": checkpoints.write_gpt2}[kind]
    checkpoint = checkpoints.load(write(tmp_path / kind), dtype=dtype)
    engine = Engine(checkpoint, num_rows=2)
    settings = {"max_tokens": 6, "ignore_eos": True, "top_p": 0.95}
    for name, length in {"short": 1, "long": 120}.items():
        engine.add(request(checkpoint, prompt_of(length), sequence_id=name, **settings))
    got = told(drain(engine))
    for name, length in {"short": 1, "long": 120}.items():
        alone = run(checkpoint, prompt_of(length), **settings)
        assert got[name].token_ids == alone.token_ids
        for mine, its in zip(got[name].tokens, alone.tokens, strict=True):
            assert mine.raw_logprob == pytest.approx(its.raw_logprob, abs=2e-2)
        assert got[name].ended.stop.reason is StopReason.MAX_TOKENS
        assert np.isfinite([(t.raw_logprob, t.logprob, t.entropy) for t in got[name].tokens]).all()


class TestAPassThatFails:
    """Several sequences share it, and one of them, or none, is to blame."""

    def test_it_is_repeated_one_by_one_and_nothing_is_counted_twice(
        self, tiny: Checkpoint, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = iter(range(100))

        def failing(real: Callable[..., list[torch.Tensor]]) -> Callable[..., list[torch.Tensor]]:
            def fails_half_way(self: RaggedNetwork | FusedNetwork, passes: Sequence[Pass]) -> list[torch.Tensor]:
                answers = real(self, passes)  # the caches have the new positions
                if len(passes) > 1 and next(calls) % 3 == 1:
                    raise RuntimeError("a kernel failed")
                return answers

            return fails_half_way

        for kind in (RaggedNetwork, FusedNetwork):
            monkeypatch.setattr(kind, "run", failing(kind.run))
        for name, length in LENGTHS.items():
            engine.add(request(tiny, prompt_of(length), sequence_id=name, **GREEDY))
        got = told(drain(engine))
        assert next(calls) >= NUM_TOKENS
        for name, length in LENGTHS.items():
            assert_alike(got[name], run(tiny, prompt_of(length), **GREEDY))

    def test_memory_that_one_lacks_ends_that_one_alone(
        self, tiny: Checkpoint, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        update, reserve = GrowingLayer.update, GrowingLayer.reserve

        def has_room_for_short_ones(num_positions: int) -> None:
            if num_positions > max(LENGTHS.values()) + 4:
                raise torch.OutOfMemoryError("out of memory")

        def updates(self: GrowingLayer, keys: torch.Tensor, *others: Any, **named: Any) -> Any:
            has_room_for_short_ones(self.get_seq_length() + keys.shape[2])
            return update(self, keys, *others, **named)

        def reserves(self: GrowingLayer, num_positions: int) -> Any:
            has_room_for_short_ones(num_positions)
            return reserve(self, num_positions)

        monkeypatch.setattr(GrowingLayer, "update", updates)
        monkeypatch.setattr(GrowingLayer, "reserve", reserves)
        for name, length in LENGTHS.items():
            engine.add(request(tiny, prompt_of(length), sequence_id=name, **GREEDY))
        got = told(drain(engine))
        longest = max(LENGTHS, key=lambda name: LENGTHS[name])
        assert got[longest].ended.stop.reason is StopReason.ERROR_OUT_OF_MEMORY
        assert len(got[longest].tokens) == 5
        monkeypatch.undo()
        for name in LENGTHS.keys() - {longest}:
            assert_alike(got[name], run(tiny, prompt_of(LENGTHS[name]), **GREEDY))
