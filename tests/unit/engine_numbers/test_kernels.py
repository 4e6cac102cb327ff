"""The compiled passes over a vocabulary against slow, obvious ones."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.unit.engine_numbers.rows import entries, row
from workers.engine.kernels.compiled import compiled
from workers.engine.kernels.exponential import exp
from workers.engine.kernels.leaders import leaders, ranks
from workers.engine.kernels.noise import gumbel
from workers.engine.kernels.nucleus import borders
from workers.engine.kernels.weighing import weigh
from workers.engine.ledger import LedgerEntry
from workers.engine.logits import truncation
from workers.engine.noise import gumbel_numpy

VOCAB = 5003  # no multiple of any number of lanes


@compiled
def exp_of_all(values: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    for i in range(values.size):
        out[i] = exp(values[i])


def logits(seed: int, rows: int = 3, *, spread: float = 3.0, is_coarse: bool = False) -> NDArray[np.float32]:
    numbers = np.random.default_rng(seed).normal(size=(rows, VOCAB)) * spread
    return (numbers.round(1) if is_coarse else numbers).astype(np.float32)


@pytest.mark.parametrize(("low", "high"), [(-87, 0), (-20, 20), (-1, 1), (0, 88)])
def test_exponentials_are_right_to_two_units_in_the_last_place(low: float, high: float) -> None:
    values = np.random.default_rng(1).uniform(low, high, 100_000).astype(np.float32)
    found = np.empty_like(values)
    exp_of_all(values, found)
    true = np.exp(values.astype(np.float64))
    assert (np.abs(found - true) / np.spacing(true.astype(np.float32))).max() < 2


def test_sums_are_those_of_float64() -> None:
    numbers = logits(2)
    weighed = weigh(numbers)
    below = numbers.astype(np.float64) - numbers.max(axis=1, keepdims=True)
    total = np.exp(below).sum(axis=1)
    assert weighed.total == pytest.approx(total, rel=1e-7)
    assert weighed.best.tolist() == numbers.max(axis=1).tolist()
    probs = np.exp(below) / total[:, np.newaxis]
    assert weighed.entropy == pytest.approx(-(probs * np.log(probs)).sum(axis=1), abs=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 64, VOCAB - 1])
def test_what_no_pick_can_be_made_of_shows(bad: float, place: int) -> None:
    numbers = logits(3)
    numbers[1, place] = bad
    weighed = weigh(numbers)
    assert np.isfinite(weighed.best + weighed.entropy).tolist() == [True, False, True]


def test_a_row_is_the_same_in_any_batch() -> None:
    numbers = logits(4, rows=9)
    together = weigh(numbers)
    for index in (0, 4, 8):
        alone = weigh(numbers[index : index + 1])
        assert (alone.weights == together.weights[index]).all()
        assert (alone.total[0], alone.entropy[0]) == (together.total[index], together.entropy[index])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 200), st.booleans(), st.integers(0, VOCAB))
def test_leaders_are_the_beginning_of_the_sorted_vocabulary(
    seed: int, num: int, is_coarse: bool, num_lost: int
) -> None:
    numbers = logits(seed, is_coarse=is_coarse)
    numbers[0, np.random.default_rng(seed).permutation(VOCAB)[:num_lost]] = -np.inf
    expected = [sorted(range(VOCAB), key=lambda i: (-mine[i], i))[:num] for mine in numbers.tolist()]
    assert leaders(numbers, num).tolist() == expected


def test_ranks_count_what_is_larger() -> None:
    numbers = logits(5, is_coarse=True)
    chosen = np.array([0, 77, VOCAB - 1])
    expected = [1 + (mine > mine[token_id]).sum() for mine, token_id in zip(numbers, chosen, strict=True)]
    assert ranks(numbers, chosen).tolist() == expected


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**31)), min_size=1, max_size=3))
def test_noise_has_the_bits_of_the_written_out_formula(draws: list[tuple[int, int]]) -> None:
    ids = np.array([[0, 1, 2, 3, 4, 49_151, 7, 151_935]] * len(draws))
    seeds, positions = (np.array(column, np.uint64) for column in zip(*draws, strict=True))
    expected = np.stack([gumbel_numpy(seed, position, ids[0]) for seed, position in draws])
    assert (gumbel(seeds, positions, ids) == expected).all()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, 1 - 1e-7]),
    st.sampled_from([0.3, 1.0, 3.0, 12.0]),
    st.booleans(),
    st.integers(0, VOCAB - 1),
)
def test_the_border_of_top_p_is_where_sorting_finds_it(
    seed: int, top_p: float, spread: float, is_coarse: bool, num_lost: int
) -> None:
    numbers = logits(seed, spread=spread, is_coarse=is_coarse)
    numbers[0, np.random.default_rng(seed).permutation(VOCAB)[:num_lost]] = -np.inf
    scores = torch.from_numpy(numbers)
    limit = torch.full((3, 1), 1 - top_p)
    expected = truncation.top_p_by_sorting(scores, limit)
    assert truncation.top_p(scores, [row({"top_p": top_p})] * 3).equal(expected)


def test_an_ordinary_border_needs_no_sorting() -> None:
    found = borders(logits(6, rows=20), np.full(20, 0.05, np.float32))
    assert found.is_sure.sum() >= 18


def test_a_border_that_float32_might_move_is_not_sure() -> None:
    """Four equal tokens and p = 0.5: whether the second half goes depends on the last bit."""
    found = borders(np.zeros((1, 4), np.float32), np.array([0.5], np.float32))
    assert not found.is_sure[0]


MIXED: list[dict[str, Any]] = [
    {},
    {"temperature": 0, "repetition_penalty": 1.3},
    {"temperature": 0.8, "top_p": 0.95},
    {"top_k": 30, "min_p": 0.02, "alternatives": 5},
    {"typical_p": 0.8, "logit_bias": {"7": 4.0}, "banned": [11]},
    {"temperature": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.2, "no_repeat_ngram_size": 1},
]


def test_an_accelerators_way_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch does there, done on this processor."""
    scores = torch.from_numpy(logits(8, rows=len(MIXED)))
    scores[:, 100] = scores[:, 101] = 12.0  # equals, and likely ones
    rows = [row(values, prompt=[7, 100], output=[5, 9]) for values in MIXED]
    compiled_ones = [entries(scores, rows, [position] * len(rows)) for position in range(10)]
    monkeypatch.setattr("workers.engine.kernels.compiled.is_for", lambda _: False)
    for position, ours in enumerate(compiled_ones):
        for one, other in zip(ours, entries(scores, rows, [position] * len(rows)), strict=True):
            assert (one.token_id, one.rank, one.rank_processed, one.kept) == (
                other.token_id,
                other.rank,
                other.rank_processed,
                other.kept,
            )
            assert [(c.token_id, c.removed_by, c.noise, c.causes) for c in one.candidates] == [
                (c.token_id, c.removed_by, c.noise, c.causes) for c in other.candidates
            ]
            assert figures(one) == pytest.approx(figures(other), abs=2e-6)


def figures(entry: LedgerEntry) -> list[float]:
    """Those that rounding may move."""
    of_candidates = [n or 0.0 for c in entry.candidates for n in (c.raw_logprob, c.logprob, c.penalty)]
    removed = list(entry.removed_mass.values())
    return [entry.raw_logprob, entry.logprob or 0.0, entry.entropy, entry.entropy_processed, *removed, *of_candidates]
