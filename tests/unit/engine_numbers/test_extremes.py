"""Values at the edge of what is legal or of what float32 holds: a row stays a distribution, or is named unhealthy."""

import math
from typing import Any

import pytest
import torch

from tests.unit.engine_numbers.rows import entries, kept_ids, logits_of, probabilities, row
from workers.engine.logits.pipeline import process, unhealthy_rows

P = (0.5, 0.25, 0.15, 0.1)


NAN, INF = math.nan, math.inf


def test_minus_infinity_from_the_checkpoint_stays_removed_by_nobody() -> None:
    settings = {
        "logit_bias": {"1": 5},
        "repetition_penalty": 2,
        "presence_penalty": 1,
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.9,
    }
    processed = process(logits_of(0.5, 0, 0.5, 0), [row(settings, prompt=[1, 2], output=[1])])
    assert processed.removed_by[0, 1] == processed.removed_by[0, 3] == -1
    assert processed.penalty[0, 1] == 0
    assert kept_ids(processed)[0] == 0
    assert processed.kept[0]["top_k"] == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1e-300},
        {"temperature": 1e-39},
        {"temperature": 1e-12},
        {"temperature": 100},
        {"repetition_penalty": 1e-300},
        {"repetition_penalty": 1e300},
        {"logit_bias": {"0": 1e300, "1": -1e300, "2": 1e300}},
        {"logit_bias": {"0": -1e300}, "temperature": 1e-5, "top_p": 0.5},
        {"top_p": 1e-300},
        {"min_p": 1e-300},
        {"typical_p": 1e-300},
    ],
)
def test_extreme_but_legal_values_stay_finite(settings: dict[str, Any]) -> None:
    logits = torch.tensor([[0.0, 3.0, -2.0, 1.0, -INF, torch.finfo(torch.float32).min]])
    (entry,) = entries(logits, [row(settings, prompt=[0, 1, 2, 3, 4, 5])])
    assert math.isfinite(entry.raw_logprob)
    assert math.isfinite(entry.logprob)
    assert math.isfinite(entry.entropy_processed)
    for candidate in entry.candidates:
        assert candidate.logprob is None or math.isfinite(candidate.logprob)
        assert math.isfinite(candidate.penalty)


def test_a_tiny_temperature_is_greedy() -> None:
    for temperature in (1e-300, 1e-40, 1e-20):
        processed = process(torch.tensor([[1.0, 3.0, 2.9]]), [row({"temperature": temperature})])
        assert probabilities(processed) == [0, 1, 0]


def test_ids_outside_the_vocabulary_of_the_logits_are_left_alone() -> None:
    settings = {"repetition_penalty": 2, "presence_penalty": 1, "no_repeat_ngram_size": 1}
    processed = process(torch.tensor([[1.0, 2.0, 3.0]]), [row(settings, prompt=[7, 1], output=[9])])
    assert processed.final.logits[0].tolist() == [1.0, -INF, 3.0]


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ([NAN, 0.0, 1.0], True),
        ([INF, 0.0, 1.0], True),
        ([-INF, -INF, -INF], True),
        ([-INF, 0.0, -INF], False),
        ([-3e38, 3e38, 0.0], False),
    ],
)
def test_unhealthy_rows_are_named_one_by_one(bad: list[float], expected: bool) -> None:
    logits = torch.zeros(4, 3)
    logits[2] = torch.tensor(bad)
    assert unhealthy_rows(logits) == ([2] if expected else [])


def test_half_precision_logits_are_taken_as_the_float32_they_stand_for() -> None:
    logits = torch.randn(1, 300, generator=torch.Generator().manual_seed(4)).bfloat16()
    settings = {"top_p": 0.8, "temperature": 0.7}
    assert torch.equal(process(logits, [row(settings)]).logprobs, process(logits.float(), [row(settings)]).logprobs)


@pytest.mark.parametrize(
    "settings",
    [
        {"logit_bias": {"0": 1e308, "1": 1e308}},
        {"logit_bias": {"0": 1e300, "1": 1e300, "2": -1e300}},
        {"repetition_penalty": 1e-320},  # positive logits of the prompt's tokens leave float32
    ],
)
def test_logits_at_the_limit_of_float32_share_the_mass(settings: dict[str, Any]) -> None:
    logits = torch.tensor([[8.0, 6.0, -1.0, 0.5]])
    (entry,) = entries(logits, [row(settings, prompt=[0, 1])])
    shown = [c.logprob for c in entry.candidates if c.logprob is not None]
    assert sum(math.exp(value) for value in shown) + entry.others.processed == pytest.approx(1, abs=1e-5)
    assert shown[:2] == pytest.approx([-math.log(2), -math.log(2)], abs=1e-6)


def test_no_token_goes_without_a_stage_that_removed_it() -> None:
    """From one limit of float32 to the other is more than it holds; the temperature does not make that a removal."""
    settings = {"temperature": 1e-38, "logit_bias": {"0": 1e308, "1": -1e308}, "banned": [2]}
    (entry,) = entries(torch.zeros(1, 4), [row(settings)])
    removed = {c.token_id: c.removed_by for c in entry.candidates if c.logprob is None}
    assert removed == {2: "bias"}
