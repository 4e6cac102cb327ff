"""Picks follow the processed distribution, and depend on nothing but it, the seed and the position."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine_numbers.chi_square import p_value
from tests.unit.engine_numbers.rows import entries, kept_ids, logits_of, row
from workers.engine.logits.pipeline import Row, process
from workers.engine.noise import gumbel_numpy
from workers.engine.sampler import pick, pick_rows

LEAST_P = 0.001
P = (0.3, 0.2, 0.15, 0.12, 0.1, 0.08, 0.03, 0.02)

MIXED: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"top_k": 9999999},
    {"top_k": 1},
    {"top_p": 0.9, "temperature": 1.3},
    {"typical_p": 0.9},
    {"min_p": 0.02, "repetition_penalty": 1.2, "presence_penalty": 0.4},
    {"no_repeat_ngram_size": 2, "logit_bias": {"3": 2}, "banned": [4], "min_tokens": 99},
    {"top_k": 40, "top_p": 0.8, "min_p": 0.01, "typical_p": 0.95, "temperature": 0.7},
]


def picks(logits: torch.Tensor, rows: list[Any], positions: list[int]) -> list[int]:
    return pick(process(logits, rows), rows, positions).token_ids.tolist()


def with_seeds(like: Row, seeds: range) -> list[Row]:
    return [replace(like, settings=like.settings.model_copy(update={"seed": seed})) for seed in seeds]


def test_the_p_value_is_the_published_one() -> None:
    """0.999 quantiles of chi-square for 1, 4 and 7 degrees of freedom, from printed tables."""
    for degrees, quantile in [(1, 10.828), (4, 18.467), (7, 24.322)]:
        expected = torch.full((degrees + 1,), 1000.0, dtype=torch.float64)
        counts = expected.clone()
        deviation = math.sqrt(quantile * 1000 / 2)
        counts[0] += deviation
        counts[1] -= deviation
        assert p_value(counts, expected) == pytest.approx(0.001, rel=1e-3)
    assert p_value(torch.tensor([1.0, 9.0]), torch.tensor([0.0, 10.0])) == 0


FIVE = (0.4, 0.25, 0.2, 0.1, 0.05)
# Settings, and what is left of FIVE by hand.
DISTRIBUTIONS: list[tuple[dict[str, Any], tuple[float, ...]]] = [
    ({}, FIVE),
    ({"temperature": 0.5}, (0.16, 0.0625, 0.04, 0.01, 0.0025)),
    ({"top_p": 0.7}, (0.4, 0.25, 0.2, 0, 0)),
    ({"banned": [0], "top_k": 3}, (0, 0.25, 0.2, 0.1, 0)),
    ({"logit_bias": {"4": math.log(8)}, "min_p": 0.3}, (0.4, 0.25, 0.2, 0, 0.4)),
    ({"repetition_penalty": 2, "typical_p": 0.99}, (0.4, 0.25, 0.2, 0.01, 0.05)),  # squared, for token 3
]


@pytest.mark.parametrize(("values", "weights"), DISTRIBUTIONS, ids=lambda value: str(value))
def test_twenty_thousand_seeds_follow_the_processed_distribution(
    values: dict[str, Any], weights: tuple[float, ...]
) -> None:
    num_draws, position = 20_000, 3
    rows = with_seeds(row(values, prompt=[3]), range(num_draws))
    processed = process(logits_of(*FIVE).expand(num_draws, -1), rows)
    drawn = pick_rows(processed, rows, [position] * num_draws)
    counts = torch.bincount(drawn, minlength=len(FIVE)).double()
    expected = torch.tensor(weights, dtype=torch.float64) * num_draws / sum(weights)
    assert p_value(counts, expected) > LEAST_P
    few = 500  # a row at a time, as on a CPU, the picks are the same
    assert picks(logits_of(*FIVE).expand(few, -1), rows[:few], [position] * few) == drawn[:few].tolist()


def test_many_positions_of_one_seed_follow_it_too() -> None:
    num_draws = 8000
    processed = process(logits_of(*P), [row()])
    counts = torch.zeros(len(P), dtype=torch.float64)
    same = row()
    for position in range(num_draws):
        counts[int(pick(processed, [same], [position]).token_ids[0])] += 1
    assert p_value(counts, torch.tensor(P, dtype=torch.float64) * num_draws) > LEAST_P


def test_more_than_fifty_tokens_of_a_flat_distribution_are_drawn() -> None:
    # 5000 first tokens over 512 nearly uniform logits: no hidden top_k.
    logits = torch.randn(1, 512, generator=torch.Generator().manual_seed(7)) * 0.1
    processed = process(logits, [row()])
    counts = torch.zeros(512, dtype=torch.float64)
    for one in with_seeds(row(), range(5000)):
        counts[int(pick(processed, [one], [0]).token_ids[0])] += 1
    assert int((counts > 0).sum()) > 400
    assert LEAST_P < p_value(counts, processed.logprobs[0].exp() * 5000) < 1 - LEAST_P


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**20), st.floats(0.05, 8), st.integers(2, 9000))
def test_the_short_way_picks_what_the_whole_row_picks(seed: int, position: int, spread: float, size: int) -> None:
    logits = torch.randn(2, size, generator=torch.Generator().manual_seed(seed % 1000)) * spread
    rows = [row({"seed": seed}), row({"seed": seed, "top_p": 0.9})]
    processed = process(logits, rows)
    assert (
        pick(processed, rows, [position] * 2).token_ids.tolist() == pick_rows(processed, rows, [position] * 2).tolist()
    )


def test_the_short_way_over_a_whole_vocabulary() -> None:
    logits = torch.randn(1, 49152, generator=torch.Generator().manual_seed(1)) * torch.tensor([[2.0]])
    processed = process(logits, [row()])
    for position in range(200):
        values = row({"seed": 10**12 + position})
        expected = pick_rows(processed, [values], [position]).tolist()
        assert pick(processed, [values], [position]).token_ids.tolist() == expected


def test_the_pick_is_the_documented_formula() -> None:
    processed = process(logits_of(*P), [row({"seed": 42, "top_k": 5})])
    ids = torch.tensor(kept_ids(processed))
    scores = processed.logprobs[0, ids].numpy() + gumbel_numpy(42, 6, ids.numpy())
    assert pick(processed, [row({"seed": 42, "top_k": 5})], [6]).token_ids.tolist() == [int(ids[scores.argmax()])]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [512, 49152])
def test_a_row_alone_and_in_any_batch_gives_the_same_bits(size: int, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        generator = torch.Generator().manual_seed(5)
        logits = torch.randn(len(MIXED), size, generator=generator) * 3
        history = torch.randint(0, size, (len(MIXED), 40), generator=generator).tolist()
        rows = [
            row(values | {"seed": 100 + i}, prompt=history[i][:30], output=history[i][30:], end=frozenset({2}))
            for i, values in enumerate(MIXED)
        ]
        positions = list(range(10, 10 + len(rows)))
        alone = [entries(logits[i : i + 1], [rows[i]], [positions[i]])[0] for i in range(len(rows))]
        bits = [process(logits[i : i + 1], [rows[i]]).logprobs[0] for i in range(len(rows))]
        for order in ([*range(len(rows))], [*reversed(range(len(rows)))], [4, 0, 4, 8, 1, 4], [6, 7]):
            chosen = [rows[i] for i in order]
            batch = process(logits[order], chosen)
            assert all(torch.equal(batch.logprobs[place], bits[i]) for place, i in enumerate(order))
            assert entries(logits[order], chosen, [positions[i] for i in order]) == [alone[i] for i in order]
    finally:
        torch.set_num_threads(before)


def test_the_number_of_threads_changes_nothing() -> None:
    logits = torch.randn(1, 49152, generator=torch.Generator().manual_seed(6)) * 3
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append([entries(logits, [row(values, prompt=[1, 2, 3])], [4]) for values in MIXED])
    finally:
        torch.set_num_threads(before)
    assert results[0] == results[1]


def test_arms_that_agree_pick_alike_and_top_k_one_is_greedy() -> None:
    logits = torch.randn(1, 512, generator=torch.Generator().manual_seed(8)) * 2
    for seed in range(30):
        same = [{}, {"top_k": 512}, {"top_k": 9999999}, {"top_k": 0}]
        assert len({entries(logits, [row(v | {"seed": seed})])[0].token_id for v in same}) == 1
        (one,) = entries(logits, [row({"top_k": 1, "seed": seed})])
        (greedy,) = entries(logits, [row({"temperature": 0, "seed": seed})])
        assert one.token_id == greedy.token_id == int(logits.argmax())


def test_one_finite_logit_is_picked_whatever_the_settings() -> None:
    logits = torch.full((1, 40), -math.inf)
    logits[0, 17] = -5.0
    for values in MIXED:
        (entry,) = entries(logits, [row(values, end=frozenset({2}))])
        assert (entry.token_id, entry.raw_logprob, entry.logprob, entry.rank) == (17, 0.0, 0.0, 1)
