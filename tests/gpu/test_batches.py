"""Batches on a CUDA device: each run is what it is alone, the picks are transformers' own, the noise is NumPy's.

In bfloat16 a logit has 8 bits, and a product adds up in an order that depends on the number of rows: near ties may fall
the other way in a batch. How often they do is measured and printed.
"""

import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.fakes import checkpoints
from tests.fakes.engine_runs import Told, assert_alike, drain, request, run, told
from tests.parity.reference import generated_by_transformers
from workers.engine import noise
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, which torch does not see here"),
]

DEVICE = "cuda"
LONG = "see what runs from the lazy dog and jumps over there " * 8
UNLIKE: dict[str, dict[str, Any]] = {
    "one": {"prompt": "the", "temperature": 0.0, "max_tokens": 24},
    "short": {"prompt": "a cat", "temperature": 1.3, "top_p": 0.9, "repetition_penalty": 1.2, "max_tokens": 12},
    "middle": {"prompt": "there is 😀 in there", "top_k": 20, "min_p": 0.01, "typical_p": 0.9, "max_tokens": 20},
    "long": {"prompt": LONG, "temperature": 0.8, "max_tokens": 9},
    "same beginning": {"prompt": LONG + "a cat", "temperature": 0.0, "max_tokens": 9},
    "bound": {"prompt": "the quick brown fox", "constraint": {"regex": "[a-z ]*"}, "max_tokens": 16},
    "beams": {"prompt": "what is in", "num_beams": 4, "no_repeat_ngram_size": 3, "max_tokens": 8},
    "no token": {"prompt": "dog", "max_tokens": 0},
}
GREEDY_PROMPTS = ["the", "a cat", "the quick brown fox", "there is 😀 in there", LONG]
NUM_GREEDY_TOKENS = 12
NUM_NEAR_RUNS = 32
NEAR = (
    0.25  # nats: far above what bfloat16 does to a raw log-probability of these networks, far below a wrong position's
)


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    write = {"llama": checkpoints.write_llama, "gpt2": checkpoints.write_gpt2}[request.param]
    return write(tmp_path_factory.mktemp("batches") / request.param)


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Checkpoint:
    return checkpoints.load(folder, device=DEVICE)


def together(checkpoint: Checkpoint, cases: Mapping[str, Mapping[str, Any]], *, num_rows: int) -> dict[str, Told]:
    """All runs in one engine. Each joins a step after the one before."""
    engine = Engine(checkpoint, num_rows=num_rows)
    outputs = []
    for name, case in cases.items():
        engine.add(request(checkpoint, sequence_id=name, **case))
        outputs.extend(engine.step())
    return told([*outputs, *drain(engine)])


@pytest.mark.parametrize("num_rows", [3, len(UNLIKE)])
def test_runs_of_unlike_lengths_are_each_as_alone(checkpoint: Checkpoint, num_rows: int) -> None:
    got = together(checkpoint, UNLIKE, num_rows=num_rows)
    for name, case in UNLIKE.items():
        assert_alike(got[name], run(checkpoint, **case), within=1e-4)


def test_a_run_that_lost_its_cache_goes_on_as_if_it_had_not(checkpoint: Checkpoint) -> None:
    engine = Engine(checkpoint, num_rows=2)
    for name in ("short", "long"):
        engine.add(request(checkpoint, sequence_id=name, **UNLIKE[name]))
    outputs = [output for _ in range(4) for output in engine.step()]
    engine.evict("short")
    got = told([*outputs, *drain(engine)])
    assert_alike(got["short"], run(checkpoint, **UNLIKE["short"]), within=1e-4)


def test_greedy_batches_pick_as_transformers_does(checkpoint: Checkpoint) -> None:
    cases = {p: {"prompt": p, "temperature": 0.0, "max_tokens": NUM_GREEDY_TOKENS} for p in GREEDY_PROMPTS}
    got = together(checkpoint, cases, num_rows=len(cases))
    for prompt in GREEDY_PROMPTS:
        prompt_ids = checkpoint.encode(prompt)
        expected = generated_by_transformers(checkpoint, prompt_ids, num_tokens=NUM_GREEDY_TOKENS)
        assert list(got[prompt].token_ids) == expected


def test_the_noise_has_numpys_bits() -> None:
    seeds, positions, vocab_size = [0, 7, 2**63 + 987654321, 2**64 - 1], [0, 77, 8191, 5], 100_003
    rows = noise.gumbel_rows(seeds, positions, vocab_size, device=torch.device(DEVICE)).cpu().numpy()
    ids = np.arange(vocab_size)
    for seed, position, row in zip(seeds, positions, rows, strict=True):
        expected = noise.gumbel_numpy(seed, position, ids)
        assert np.array_equal(row.view(np.int64), expected.view(np.int64))
        some = torch.arange(0, vocab_size, 7, device=DEVICE)
        of_some = noise.gumbel(seed, position, some).cpu().numpy()
        assert np.array_equal(of_some.view(np.int64), expected[::7].view(np.int64))


def test_bfloat16_batches_differ_at_near_ties_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = checkpoints.load(folder, device=DEVICE, dtype="bfloat16")
    prompts = itertools.cycle(GREEDY_PROMPTS)
    cases = {
        str(seed): {"prompt": next(prompts), "temperature": float(seed % 2), "seed": seed, "max_tokens": 24}
        for seed in range(NUM_NEAR_RUNS)
    }
    got = together(checkpoint, cases, num_rows=len(cases))
    num_differing = 0
    for name, case in cases.items():
        alone = run(checkpoint, **case)
        num_differing += got[name].token_ids != alone.token_ids
        assert_alike_but_for_near_ties(checkpoint, got[name], alone, case)
    report(capsys, f"bfloat16: {num_differing} of {len(cases)} runs of 24 tokens differ in a batch from alone")


def assert_alike_but_for_near_ties(checkpoint: Checkpoint, one: Told, other: Told, case: Mapping[str, Any]) -> None:
    """The numbers are near as long as the tokens are equal, and the two that first are not were nearly as good."""
    for mine, its in zip(one.tokens, other.tokens, strict=False):
        if mine.token_id != its.token_id:
            before = [*checkpoint.encode(case["prompt"]), *one.token_ids[: mine.position]]
            scores = next_logprobs(checkpoint, before)
            if case["temperature"]:
                scores = scores + noise.gumbel_numpy(case["seed"], mine.position, np.arange(scores.size))
            assert min(scores[mine.token_id], scores[its.token_id]) > scores.max() - 2 * NEAR
            return
        assert mine.raw_logprob == pytest.approx(its.raw_logprob, abs=NEAR)
    assert len(one.tokens) == len(other.tokens)


@torch.inference_mode()
def next_logprobs(checkpoint: Checkpoint, token_ids: Sequence[int]) -> np.ndarray:
    """Raw log-probabilities (vocab,) after a text, by one pass of the network without a cache."""
    ids = torch.tensor([token_ids], device=checkpoint.info.device)
    return checkpoint.network(input_ids=ids, use_cache=False).logits[0, -1].double().log_softmax(-1).cpu().numpy()


def test_eight_runs_at_once_take_less_time_than_one_after_the_other(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {str(seed): {"prompt": "the quick", "seed": seed, "ignore_eos": True} for seed in range(8)}
    times_s: dict[int, list[float]] = {1: [], 8: []}
    for _ in range(4):  # in turn, the first time to warm up
        for num_rows, times in times_s.items():
            began_s = time.perf_counter()
            together(checkpoint, {name: {**case, "max_tokens": 48} for name, case in cases.items()}, num_rows=num_rows)
            times.append(time.perf_counter() - began_s)
    alone_s, batch_s = (float(np.median(times[1:])) for times in times_s.values())
    report(capsys, f"8 runs of 48 tokens: {alone_s:.2f} s one after the other, {batch_s:.2f} s in a batch")
    assert batch_s < alone_s


def report(capsys: pytest.CaptureFixture[str], line: str) -> None:
    """Show a figure whatever pytest captures."""
    with capsys.disabled():
        sys.stdout.write(f"\n{line}\n")
