"""The engine against transformers itself: `generate()`, a plain forward pass, and its own logits processors.

On the default checkpoint and on tiny ones with both kinds of positions, ten prompts each.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from models.events import TokenPicked
from models.sampling import Settings
from tests.fakes.engine_runs import run
from tests.parity.reference import LOGPROB_TOLERANCE, PROCESSED_TOLERANCE, forward_logprobs, generated_by_transformers
from workers.engine.cache import SequenceCache
from workers.engine.checkpoint import Checkpoint
from workers.engine.logits.pipeline import Row, process

TINY_PROMPTS = [
    "the",
    "a cat",
    "the quick brown fox",
    "there is",
    "see what runs from the lazy dog",
    "over and over and over and over",
    "what is in there",
    "😀 and naïve Zürich",
    "   spaces   and\nlines\n\n",
    "the quick brown fox jumps over the lazy dog and runs from a cat to see what is there in " * 3,
]
REAL_PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time there was",
    "1, 2, 3, 4,",
    "Die Hauptstadt von Österreich ist",
    "Water boils at",
    "😀😀😀",
    "To be, or not to be,",
    '{"name": "Ada", "born":',
    "The quick brown fox jumps over the lazy dog. " * 20,
]
NUM_TOKENS = 12


def prompts_of(tiny: bool) -> list[Any]:
    return [pytest.param(prompt, id=f"prompt{i}") for i, prompt in enumerate(TINY_PROMPTS if tiny else REAL_PROMPTS)]


@pytest.mark.parametrize("prompt", prompts_of(tiny=True))
def test_tiny_checkpoints_agree(tiny: Checkpoint, prompt: str) -> None:
    agrees(tiny, prompt)


@pytest.mark.checkpoint
@pytest.mark.parametrize("prompt", prompts_of(tiny=False))
def test_the_default_checkpoint_agrees(default_checkpoint: Checkpoint, prompt: str) -> None:
    agrees(default_checkpoint, prompt)


@pytest.mark.checkpoint
def test_the_capital_of_france(default_checkpoint: Checkpoint) -> None:
    got = run(default_checkpoint, "The capital of France is", temperature=0.0, max_tokens=3)
    first = got.tokens[0]
    assert first.piece == " Paris"
    assert 0.77 < np.exp(first.raw_logprob) < 0.78
    shown = {c.piece: np.exp(c.raw_logprob) for c in first.candidates if c.raw_logprob is not None}
    assert shown[" the"] == pytest.approx(0.065, abs=0.001)
    assert shown[" London"] == pytest.approx(0.012, abs=0.001)
    assert first.rank == 1


def agrees(checkpoint: Checkpoint, prompt: str) -> None:
    """Greedy ids equal `generate()`; raw log-probabilities and the 20 candidates equal a plain forward pass."""
    prompt_ids = list(checkpoint.encode(prompt))
    got = run(checkpoint, prompt_ids, temperature=0.0, max_tokens=NUM_TOKENS)
    assert list(got.token_ids) == generated_by_transformers(checkpoint, prompt_ids, num_tokens=NUM_TOKENS)
    expected = forward_logprobs(checkpoint, [*prompt_ids, *got.token_ids])[len(prompt_ids) - 1 :]
    for token, logprobs in zip(got.tokens, expected, strict=False):
        check_candidates(token, logprobs)
        assert token.raw_logprob == pytest.approx(logprobs[token.token_id], abs=LOGPROB_TOLERANCE)
        entropy = -np.sum(np.exp(logprobs) * logprobs)
        assert token.entropy == pytest.approx(entropy, abs=LOGPROB_TOLERANCE)


def check_candidates(token: TokenPicked, logprobs: np.ndarray) -> None:
    best = np.sort(logprobs)[::-1][:20]
    shown = [c.raw_logprob for c in token.candidates]
    assert len(shown) == 20
    np.testing.assert_allclose(np.array(shown, dtype=float), best, atol=LOGPROB_TOLERANCE)
    for candidate in token.candidates:
        assert candidate.raw_logprob == pytest.approx(logprobs[candidate.token_id], abs=LOGPROB_TOLERANCE)
    assert token.others.raw == pytest.approx(1 - np.sum(np.exp(best)), abs=LOGPROB_TOLERANCE)


PROCESSOR_CASES: list[tuple[dict[str, Any], list[Any]]] = [
    ({"temperature": 0.7}, [TemperatureLogitsWarper(0.7)]),
    ({"top_k": 5}, [TopKLogitsWarper(5)]),
    ({"top_k": 100_000}, [TopKLogitsWarper(100_000)]),
    ({"top_p": 0.6}, [TopPLogitsWarper(0.6)]),
    ({"min_p": 0.1}, [MinPLogitsWarper(0.1)]),
    ({"typical_p": 0.5}, [TypicalLogitsWarper(0.5)]),
    ({"repetition_penalty": 1.5}, [RepetitionPenaltyLogitsProcessor(1.5)]),
    ({"repetition_penalty": 0.8}, [RepetitionPenaltyLogitsProcessor(0.8)]),
    ({"no_repeat_ngram_size": 2}, [NoRepeatNGramLogitsProcessor(2)]),
    ({"logit_bias": {"263": 3.0, "271": -2.0}}, [SequenceBiasLogitsProcessor([[[263], 3.0], [[271], -2.0]])]),
    (
        {"repetition_penalty": 1.2, "temperature": 1.7, "top_k": 40, "top_p": 0.9, "min_p": 0.02},
        [
            RepetitionPenaltyLogitsProcessor(1.2),
            TemperatureLogitsWarper(1.7),
            TopKLogitsWarper(40),
            TopPLogitsWarper(0.9),
            MinPLogitsWarper(0.02),
        ],
    ),
]


@pytest.mark.parametrize(("settings", "processors"), PROCESSOR_CASES, ids=[str(c[0]) for c in PROCESSOR_CASES])
def test_processed_logprobs_are_those_of_the_processors(
    tiny: Checkpoint, settings: dict[str, Any], processors: list[Any]
) -> None:
    for prompt in TINY_PROMPTS:
        prompt_ids = list(checkpoint_ids(tiny, prompt))
        output_ids = prompt_ids[: len(prompt_ids) // 2]
        logits = last_logits(tiny, [*prompt_ids, *output_ids])
        row = Row(settings=Settings.parse({"seed": 1, **settings}), prompt_ids=prompt_ids, output_ids=output_ids)
        mine = process(logits, [row]).logprobs[0].numpy()
        scores = LogitsProcessorList(processors)(torch.tensor([[*prompt_ids, *output_ids]]), logits.clone())
        theirs = scores[0].double().log_softmax(-1).numpy()
        np.testing.assert_array_equal(np.isneginf(mine), np.isneginf(theirs))
        np.testing.assert_allclose(mine, theirs, atol=PROCESSED_TOLERANCE)


def test_min_tokens_is_that_of_the_processor(tiny: Checkpoint) -> None:
    prompt_ids = list(checkpoint_ids(tiny, "the quick"))
    (end,) = tiny.info.end_token_ids
    for num_generated in (0, 2, 3):
        token_ids = [*prompt_ids, *prompt_ids * 2][: len(prompt_ids) + num_generated]
        logits = last_logits(tiny, token_ids)
        row = Row(
            settings=Settings.parse({"min_tokens": 3}),
            prompt_ids=prompt_ids,
            output_ids=token_ids[len(prompt_ids) :],
            end_token_ids=frozenset({end}),
        )
        processor = MinNewTokensLengthLogitsProcessor(len(prompt_ids), 3, end)
        theirs = processor(torch.tensor([token_ids]), logits.clone())[0].double().log_softmax(-1).numpy()
        mine = process(logits, [row]).logprobs[0].numpy()
        assert np.isneginf(mine[end]) == (num_generated < 3)
        np.testing.assert_allclose(mine, theirs, atol=PROCESSED_TOLERANCE)


def test_a_growing_cache_gives_what_transformers_own_gives(tiny: Checkpoint) -> None:
    ids = list(checkpoint_ids(tiny, TINY_PROMPTS[-1]))
    whole = forward_logprobs(tiny, ids)
    cache = SequenceCache(tiny.network)
    mine = []
    with torch.inference_mode():
        for start, end in [(0, 3), (3, 4), (4, 20), *((i, i + 1) for i in range(20, len(ids)))]:
            positions = torch.arange(start, end)[None]
            chunk = torch.tensor([ids[start:end]])
            output = tiny.network(input_ids=chunk, position_ids=positions, cache=cache.layers, use_cache=True)
            mine.append(output.logits[0].double().log_softmax(-1).numpy())
    np.testing.assert_allclose(np.concatenate(mine), whole, atol=LOGPROB_TOLERANCE)


def checkpoint_ids(checkpoint: Checkpoint, prompt: str) -> tuple[int, ...]:
    return checkpoint.encode(prompt)


@torch.inference_mode()
def last_logits(checkpoint: Checkpoint, token_ids: Sequence[int]) -> torch.Tensor:
    """(1, vocab)"""
    return checkpoint.network(input_ids=torch.tensor([token_ids]), use_cache=False).logits[:, -1].float()
