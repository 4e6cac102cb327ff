"""The engine against transformers on a tiny checkpoint of each family, 20 prompts each.

One pass without a cache over prompt and output gives all steps at once. The processed distribution is compared on the
engine's own raw logits, so that a difference in rounding cannot move a token across a threshold.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch

from models.sampling import Settings
from tests.fakes.engine_runs import assert_alike, drain, request, run, told
from tests.fakes.families import FAMILIES, WINDOW, Family
from tests.parity.agreement import SETTINGS, heard, processed_agree, raw_agree
from tests.parity.reference import (
    LOGPROB_TOLERANCE,
    forward_logprobs,
    generated_by_transformers,
    logprobs,
)
from tests.parity.test_beams import agree, by_transformers, by_us
from workers.engine import scheduler
from workers.engine.cache import GrowingLayer, SequenceCache
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine
from workers.engine.runner import Runner
from workers.engine.scoring import score
from workers.engine.what_if import what_if

LENGTHS: Final = (1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 15, 16, 17, 20, 25, 33, 60)  # the window is 8
NUM_TOKENS: Final = 10  # so that the shortest prompt crosses it too
NUM_SEARCHED: Final = 6
NUM_SAMPLED: Final = 3  # a step after the prompt, and two after a step


def _prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(0, 400, (length,), generator=generator).tolist() for length in LENGTHS]


PROMPTS: Final = _prompts()


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


@pytest.fixture(scope="session")
def checkpoint(family: Family, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return family.load(tmp_path_factory.mktemp("family") / "tiny")


def test_greedy_is_generate(checkpoint: Checkpoint) -> None:
    outputs = set()
    for prompt in PROMPTS:
        with heard() as own:
            got = run(checkpoint, prompt, temperature=0.0, max_tokens=NUM_TOKENS)
        assert list(got.token_ids) == generated_by_transformers(checkpoint, prompt, num_tokens=NUM_TOKENS)
        raw_agree(checkpoint, prompt, got, own)
        outputs.add(got.token_ids)
    assert len(outputs) > 10  # or it would prove little


@pytest.mark.parametrize("case", SETTINGS, ids=str)
def test_processed_logprobs_are_those_of_the_processors(checkpoint: Checkpoint, case: dict[str, Any]) -> None:
    for number, prompt in enumerate(PROMPTS):
        processed_agree(checkpoint, prompt, case, max_tokens=NUM_SAMPLED, seed=number)


@pytest.mark.parametrize("num_positions", [3, WINDOW, WINDOW + 3])
def test_a_prompt_in_chunks_is_the_whole_prompt(
    checkpoint: Checkpoint, num_positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = PROMPTS[-1]
    whole = run(checkpoint, prompt, temperature=0.0, max_tokens=4)
    monkeypatch.setattr(scheduler, "CHUNK_POSITIONS", num_positions)
    with heard() as own:
        got = run(checkpoint, prompt, temperature=0.0, max_tokens=4)
    assert got.token_ids == whole.token_ids
    least = 1 if checkpoint.info.prefills_whole else -(-len(prompt) // num_positions)
    assert least <= got.ended.passes.prefill <= 2 * least - 1  # later chunks may be shorter, as they attend to more
    raw_agree(checkpoint, prompt, got, own)


def test_a_beam_search_is_generates(checkpoint: Checkpoint) -> None:
    """Rows change places at each step, in windows and states too."""
    for prompt in PROMPTS:
        got, _ = by_us(checkpoint, prompt, num_beams=3, max_tokens=NUM_SEARCHED)
        agree(got, by_transformers(checkpoint, prompt, num_beams=3, max_new_tokens=NUM_SEARCHED))


def test_a_resumed_run_goes_on_as_it_would_have(checkpoint: Checkpoint) -> None:
    whole = run(checkpoint, PROMPTS[9], seed=3, max_tokens=8)
    rest = run(checkpoint, PROMPTS[9], seed=3, max_tokens=8, generated=whole.token_ids[:5])
    assert whole.token_ids[:5] + rest.token_ids == whole.token_ids


def test_a_run_scored_or_looked_back_at_is_the_run(checkpoint: Checkpoint) -> None:
    """Both go over several positions a pass, in another way than the run did."""
    values = {"seed": 3, "temperature": 0.8, "top_p": 0.9, "max_tokens": 24}
    settings = Settings.parse(values)
    got = run(checkpoint, PROMPTS[12], **values)
    scored = score(checkpoint, PROMPTS[12], got.token_ids, settings)
    for mine, theirs in zip(scored.tokens, got.tokens, strict=True):
        assert mine.raw_logprob == pytest.approx(theirs.raw_logprob, abs=LOGPROB_TOLERANCE)
    assert what_if(checkpoint, PROMPTS[12], got.token_ids, settings).first_difference is None


def test_what_cannot_share_a_pass_says_so_and_nothing_else_does(checkpoint: Checkpoint, family: Family) -> None:
    assert checkpoint.info.can_batch is not family.runs_alone
    assert bool(checkpoint.info.alone_because) is family.runs_alone
    assert checkpoint.info.prefills_whole is family.prefills_whole
    assert checkpoint.info.is_fused is family.is_fused


def test_alone_is_as_in_any_batch(checkpoint: Checkpoint) -> None:
    """Sequences of unlike lengths join while others run, one leaves early, first and last rows change; beams and a text
    that is scored are among them."""
    options: list[dict[str, Any]] = [
        {"temperature": 0.0, "max_tokens": 12},
        {"seed": 1, "max_tokens": 4},
        {"seed": 2, "temperature": 0.7, "top_p": 0.8, "max_tokens": 14},
        {"num_beams": 3, "max_tokens": 5},
        {"seed": 3, "top_k": 20, "repetition_penalty": 1.3, "max_tokens": 9},
        {"temperature": 0.0, "max_tokens": 6},
    ]
    prompts = [PROMPTS[number] for number in (9, 19, 2, 12, 17, 1)]
    engine = Engine(checkpoint, num_rows=4)
    outputs = []
    for number, (prompt, settings) in enumerate(zip(prompts, options, strict=True)):
        engine.add(request(checkpoint, prompt, sequence_id=str(number), ignore_eos=True, **settings))
        outputs += engine.step()
    together = told([*outputs, *drain(engine)])
    for number, (prompt, settings) in enumerate(zip(prompts, options, strict=True)):
        assert_alike(together[str(number)], run(checkpoint, prompt, ignore_eos=True, **settings))


@pytest.mark.parametrize("num_positions", [1, 2, WINDOW - 1, WINDOW, 3 * WINDOW])
def test_the_bytes_are_those_of_the_tensors_that_are_held(checkpoint: Checkpoint, num_positions: int) -> None:
    runner = Runner(checkpoint)
    cache = runner.new_cache()
    with torch.inference_mode():
        runner.prefill(cache, range(num_positions))
        assert cache.num_bytes == tensor_bytes(cache) == checkpoint.info.kv_bytes(num_positions)
        runner.decode(cache, 7)
    assert cache.num_bytes == tensor_bytes(cache) == checkpoint.info.kv_bytes(num_positions + 1)
    assert cache.num_allocated_bytes >= cache.num_bytes


@pytest.mark.parametrize(("floor", "is_same"), [(1e-9, True), (0.001, False)])
@torch.inference_mode()
def test_zamba2_steps_without_its_floor(tmp_path: Path, floor: float, is_same: bool) -> None:
    """In transformers 5.24 a pass over one position leaves out the smallest time step that other passes keep to.

    So Zamba2's own `generate()` is not its own forward pass, by 0.19 nats here, and it is not among the families
    proven. Should this fail, that has been mended and Zamba2 belongs there. NemotronH has the same fault.
    """
    sizes = {"mamba_d_state": 8, "n_mamba_heads": 6, "mamba_headdim": 16, "mamba_ngroups": 2, "chunk_size": 8}
    layers = {
        "hidden_size": 48,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "layers_block_type": ["mamba", "hybrid", "mamba"],
        "num_mem_blocks": 1,
    }
    weights = {"initializer_range": 0.35, "tie_word_embeddings": False, "max_position_embeddings": 128}
    family = Family("Zamba2Config", {**sizes, **layers, **weights, "time_step_min": floor})
    checkpoint = family.load(tmp_path / "tiny")
    ids = torch.randint(6, 500, (20,), generator=torch.Generator().manual_seed(3)).tolist()
    cache = SequenceCache(checkpoint.network)
    runner = Runner(checkpoint)
    steps = torch.cat([runner.prefill(cache, ids[:1]), *(runner.decode(cache, i) for i in ids[1:])])
    difference = float(np.abs(logprobs(steps) - forward_logprobs(checkpoint, ids)).max())
    assert bool(difference < LOGPROB_TOLERANCE) is is_same, difference
    assert is_same or 0.03 < difference < 1


def tensor_bytes(cache: SequenceCache) -> int:
    """Of every tensor of numbers that the layers have under a name of transformers'."""
    values = [value for layer in cache.layers.layers for name, value in vars(layer).items() if name[0] != "_"]
    growing = [layer for layer in cache.layers.layers if isinstance(layer, GrowingLayer)]
    values += [t for layer in growing for t in (layer.keys, layer.values)]
    tensors = [t for value in values for t in (value.values() if isinstance(value, dict) else [value])]
    return sum(t.nbytes for t in tensors if isinstance(t, torch.Tensor))
