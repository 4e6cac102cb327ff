"""Known answers, equal bits in both libraries, and the shape of the distribution."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workers.engine import noise

CPU = torch.device("cpu")
# philox4x32 with 10 rounds, from Random123's file of known answers: counter, key, result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype == np.float64 and bool((a.view(np.int64) == b.view(np.int64)).all())


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter: str, key: str, result: str) -> None:
    in_numpy = noise.philox(*(tuple(np.array([w]) for w in words(text)) for text in (counter, key)))  # type: ignore[arg-type]
    in_torch = noise.philox(*(tuple(torch.tensor([w]) for w in words(text)) for text in (counter, key)))  # type: ignore[arg-type]
    assert [int(w[0]) for w in in_numpy] == words(result)
    assert [int(w[0]) for w in in_torch] == words(result)


def test_a_known_answer_reaches_the_noise_through_the_word_layout() -> None:
    # Counter (0, 0, 0, 0) under key (0, 0) is tokens 0 to 3 at position 0 of seed 0.
    expected = [-math.log(-math.log((x + 0.5) / 2**32)) for x in words(KNOWN_ANSWERS[0][2])]
    assert noise.gumbel_numpy(0, 0, np.arange(4)) == pytest.approx(expected, rel=1e-14)


def test_seed_words_position_and_block_stand_where_the_docstring_says() -> None:
    seed, position, token = 0x299F31D0_A4093822, 0x243F6A88, 4 * 0x05A308D3 + 2
    key = tuple(np.array([w]) for w in (0xA4093822, 0x299F31D0))
    counter = tuple(np.array([w]) for w in (0x243F6A88, 0x05A308D3, 0, 0))
    x = int(noise.philox(counter, key)[2][0])  # type: ignore[arg-type]
    expected = -math.log(-math.log((x + 0.5) / 2**32))
    assert noise.gumbel_numpy(seed, position, np.array([token]))[0] == pytest.approx(expected, rel=1e-14)


def test_a_million_numbers_have_the_same_bits_in_numpy_and_torch() -> None:
    ids = np.arange(10**6)
    seed, position = 2**63 + 987654321, 77
    expected = noise.gumbel_numpy(seed, position, ids)
    assert same_bits(expected, noise.gumbel_rows([seed], [position], ids.size, device=CPU)[0].numpy())
    one_a_counter = noise.NUM_LANES * ids + ids % noise.NUM_LANES  # a million counters, each lane in turn
    expected = noise.gumbel_numpy(seed, position, one_a_counter)
    assert same_bits(expected, noise.gumbel(seed, position, torch.from_numpy(one_a_counter)).numpy())
    # Gumbel(0, 1): mean 0.5772, variance pi^2 / 6; four standard errors of a million draws.
    assert expected.mean() == pytest.approx(0.57722, abs=0.0052)
    assert expected.var() == pytest.approx(math.pi**2 / 6, abs=0.012)


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)), min_size=1, max_size=4),
    st.integers(1, 70),
)
def test_every_form_gives_the_same_bits(runs: list[tuple[int, int]], vocab_size: int) -> None:
    seeds, positions = [s for s, _ in runs], [p for _, p in runs]
    whole = noise.gumbel_rows(seeds, positions, vocab_size, device=CPU).numpy()
    backwards = np.arange(vocab_size)[::-1].copy()
    for row, (seed, position) in enumerate(runs):
        some = noise.gumbel_numpy(seed, position, backwards)
        assert same_bits(whole[row][::-1].copy(), some)
        assert same_bits(some, noise.gumbel(seed, position, torch.from_numpy(backwards)).numpy())


def test_the_extreme_words_give_finite_noise() -> None:
    u = (np.array([0, 2**32 - 1]) + 0.5) / 2**32
    low, high = -noise.log(-noise.log(u))
    assert low == pytest.approx(-math.log(33 * math.log(2)), rel=1e-14)
    assert high == pytest.approx(33 * math.log(2), rel=1e-9)


def test_log_is_within_two_units_in_the_last_place() -> None:
    generator = np.random.default_rng(1)
    near_one = 0.7 + 0.8 * generator.random(2000)
    anywhere = generator.random(2000) * np.exp(20 * generator.standard_normal(2000))
    edges = (np.array([0, 1, 2**31, 2**32 - 2, 2**32 - 1]) + 0.5) / 2**32
    values = np.concatenate([near_one, anywhere, edges])
    results = noise.log(values)
    with mpmath.workprec(200):
        for value, result in zip(values.tolist(), results.tolist(), strict=True):
            exact = mpmath.log(mpmath.mpf(value))
            assert abs(mpmath.mpf(result) - exact) <= abs(exact) * 2**-51
    assert same_bits(results, noise.log(torch.from_numpy(values)).numpy())


def test_neighbouring_seeds_positions_and_tokens_are_unrelated() -> None:
    ids = np.arange(40_000)
    base = noise.gumbel_numpy(5, 9, ids)
    for other in (noise.gumbel_numpy(6, 9, ids), noise.gumbel_numpy(5, 10, ids), noise.gumbel_numpy(5, 9, ids + 1)):
        assert abs(np.corrcoef(base, other)[0, 1]) < 0.025  # five standard errors
