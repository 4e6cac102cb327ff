"""The engine on a CUDA device: the same numbers as on a CPU, within what float32 and bfloat16 allow."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.fakes import checkpoints
from tests.fakes.engine_runs import run
from workers.engine.checkpoint import Checkpoint

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, which torch does not see here"),
]

PROMPTS = ["the quick brown fox", "a cat", "there is 😀 in there"]
CASES: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.3, "top_p": 0.9, "repetition_penalty": 1.2},
    {"top_k": 20, "min_p": 0.01, "typical_p": 0.9},
    {"num_beams": 4, "no_repeat_ngram_size": 3},
    {"num_beams": 3, "constraint": {"regex": "[a-z ]*"}},
]


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    write = {"llama": checkpoints.write_llama, "gpt2": checkpoints.write_gpt2}[request.param]
    return write(tmp_path_factory.mktemp("gpu") / request.param)


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_float32_tells_the_same_story_on_both(folder: Path, settings: dict[str, Any]) -> None:
    cpu, cuda = (checkpoints.load(folder, device=device) for device in ("cpu", "cuda"))
    for prompt in PROMPTS:
        expected = run(cpu, prompt, max_tokens=20, **settings)
        got = run(cuda, prompt, max_tokens=20, **settings)
        assert got.token_ids == expected.token_ids
        assert (got.text, got.ended.stop, got.ended.kv_bytes) == (
            expected.text,
            expected.ended.stop,
            expected.ended.kv_bytes,
        )
        for mine, theirs in zip(got.tokens, expected.tokens, strict=True):
            assert mine.raw_logprob == pytest.approx(theirs.raw_logprob, abs=1e-3)
            noise = {c.token_id: c.noise for c in theirs.candidates}
            assert all(c.noise == noise.get(c.token_id, c.noise) for c in mine.candidates)


def test_bfloat16_is_near(folder: Path) -> None:
    cpu, cuda = checkpoints.load(folder), checkpoints.load(folder, device="cuda", dtype="bfloat16")
    assert (cuda.info.device, cuda.info.dtype) == ("cuda:0", "bfloat16")
    assert cuda.info.kv_bytes(10) * 2 == cpu.info.kv_bytes(10)
    for prompt in PROMPTS:
        mine, theirs = first_logprobs(cuda, prompt), first_logprobs(cpu, prompt)
        assert np.abs(np.exp(mine) - np.exp(theirs)).max() < 2e-2


def first_logprobs(checkpoint: Checkpoint, prompt: str) -> np.ndarray:
    """Raw log-probabilities (vocab,) after a prompt."""
    with torch.inference_mode():
        ids = torch.tensor([checkpoint.encode(prompt)], device=checkpoint.info.device)
        return checkpoint.network(input_ids=ids).logits[0, -1].double().log_softmax(-1).cpu().numpy()
