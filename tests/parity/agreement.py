"""What it means that a run agrees with transformers: five settings, and its raw and processed numbers step by step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pytest
import torch

from models.events import TokenPicked
from models.sampling import Settings
from tests.fakes.engine_runs import Told, run
from tests.parity.reference import (
    LOGPROB_TOLERANCE,
    PROCESSED_TOLERANCE,
    forward_logprobs,
    logprobs,
    processors,
)
from workers.engine.checkpoint import Checkpoint
from workers.engine.runner import Runner

SETTINGS: Final[list[dict[str, Any]]] = [
    {"temperature": 0.7},
    {"top_k": 40, "top_p": 0.8},
    {"min_p": 0.1},
    {"repetition_penalty": 1.5, "no_repeat_ngram_size": 1},
    {
        "repetition_penalty": 1.2,
        "no_repeat_ngram_size": 2,
        "temperature": 1.3,
        "top_k": 60,
        "top_p": 0.95,
        "min_p": 0.01,
        "typical_p": 0.9,
    },
]


def processed_agree(checkpoint: Checkpoint, prompt_ids: Sequence[int], case: dict[str, Any], **options: Any) -> None:
    """At every step of a run the processed distribution is that of transformers' processors on the same raw logits."""
    expected = processors(Settings.parse(case))
    assert expected
    with heard() as own:
        got = run(checkpoint, prompt_ids, **options, **case)
    for step, (token, logits) in enumerate(zip(got.tokens, own, strict=True)):
        scores = expected(torch.tensor([[*prompt_ids, *got.token_ids[:step]]]), logits[None].clone())
        candidates_agree(token, raw=logprobs(logits), processed=logprobs(scores[0]))


@contextmanager
def heard() -> Iterator[list[torch.Tensor]]:
    """The engine's own raw logits (vocab,) after each pass of the body; the last of them are those of the tokens."""
    passes: list[torch.Tensor] = []
    real = Runner._forward

    def forward(self: Runner, *arguments: Any, **named: Any) -> torch.Tensor:
        logits = real(self, *arguments, **named)
        passes.append(logits[-1])
        return logits

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runner, "_forward", forward)
        yield passes


def raw_agree(checkpoint: Checkpoint, prompt: Sequence[int], got: Told, own: list[torch.Tensor]) -> None:
    """The engine's raw log-probabilities, over the whole vocabulary, are those of a pass without a cache."""
    expected = forward_logprobs(checkpoint, [*prompt, *got.token_ids])[len(prompt) - 1 : -1]
    mine = logprobs(torch.stack(own[-len(got.tokens) :]))
    np.testing.assert_allclose(mine, expected, atol=LOGPROB_TOLERANCE)
    for token, step in zip(got.tokens, mine, strict=True):
        assert token.raw_logprob == pytest.approx(step[token.token_id], abs=PROCESSED_TOLERANCE)


def candidates_agree(token: TokenPicked, *, raw: np.ndarray, processed: np.ndarray) -> None:
    """What is shown of a step: the picked token, and each candidate, removed by a stage exactly where it is there."""
    assert token.logprob == pytest.approx(processed[token.token_id], abs=PROCESSED_TOLERANCE)
    for candidate in token.candidates:
        assert candidate.raw_logprob == pytest.approx(raw[candidate.token_id], abs=PROCESSED_TOLERANCE)
        is_removed = bool(np.isneginf(processed[candidate.token_id]))
        assert (candidate.logprob is None) == (candidate.removed_by is not None) == is_removed
        if not is_removed:
            assert candidate.logprob == pytest.approx(processed[candidate.token_id], abs=PROCESSED_TOLERANCE)
