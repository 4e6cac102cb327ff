"""Intervals and verdicts: numbers from the printed tables, worked by hand, and the laws they must keep."""

import math
import random

import pytest

from app.verdicts import Interval, interval, is_distinct, t_probability, t_quantile, verdict


@pytest.mark.parametrize(
    ("probability", "degrees", "t"),
    [  # Abramowitz and Stegun, table 26.10
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 3, 3.182),
        (0.975, 4, 2.776),
        (0.975, 9, 2.262),
        (0.975, 15, 2.131),
        (0.975, 30, 2.042),
        (0.975, 60, 2.000),
        (0.995, 5, 4.032),
        (0.9995, 10, 4.587),
    ],
)
def test_the_quantiles_of_the_table(probability: float, degrees: int, t: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(t, abs=5.1e-4)


@pytest.mark.parametrize("degrees", [1, 2, 3, 8, 63])
def test_a_quantile_undoes_the_probability(degrees: int) -> None:
    assert t_probability(0.0, degrees) == 0.5
    for probability in (0.6, 0.9, 0.999, 1 - 0.025 / 189):
        assert t_probability(t_quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-12)


def test_an_interval_by_hand() -> None:
    # 1, 2, 3, 4: mean 2.5, s = sqrt(5 / 3), s / sqrt(4) = 0.645497; t(0.975, 3) = 3.182446
    found = interval([1.0, 2.0, 3.0, 4.0])
    assert found == Interval(2.5, pytest.approx(2.5 - 2.054260, abs=1e-5), pytest.approx(4.554260, abs=1e-5), 4)
    assert interval([1.0]) is None
    assert interval([]) is None


def test_arms_are_compared_seed_by_seed() -> None:
    # The noise moves both arms by tens, the setting moves them by one: only the pairs show it.
    base = {i: 10.0 * i for i in range(8)}
    arm = {i: 10.0 * i + 1 + (0.1 if i % 2 else -0.1) for i in range(8)}
    found = verdict({"tokens": base}, {"tokens": arm}, num_arms=1)
    assert found.is_distinct
    assert found.n == 8
    difference = found.differences[0].interval
    assert difference is not None
    # s = 0.1 * sqrt(8 / 7), t(0.975, 7) = 2.364624: half = 2.364624 * 0.106904 / sqrt(8)
    assert difference.mean == pytest.approx(1.0)
    assert difference.high - difference.mean == pytest.approx(0.089374, abs=1e-5)


def test_only_the_seeds_that_both_have_count() -> None:
    found = verdict({"x": {0: 1.0, 1: 2.0, 2: 3.0}}, {"x": {1: 2.5, 2: 3.5, 7: 9.0}}, num_arms=1)
    assert found.n == 2
    assert found.differences[0].interval == Interval(0.5, 0.5, 0.5, 2)
    assert not found.is_distinct


def test_an_interval_around_zero_is_no_difference() -> None:
    found = verdict({"x": dict(enumerate([0.0] * 4))}, {"x": dict(enumerate([1.0, -1.0, 2.0, -1.5]))}, num_arms=1)
    assert not found.is_distinct
    assert verdict({"x": {}}, {"x": {}}, num_arms=1).n == 0


def test_more_arms_need_more_evidence() -> None:
    differences = [0.2, 1.0, 0.7, 1.4, 0.1]  # mean 0.68, s = 0.5450, t = 2.790: beyond 2.776 and within 8.610
    base = {"x": dict.fromkeys(range(5), 0.0)}
    arm = {"x": dict(enumerate(differences))}
    assert verdict(base, arm, num_arms=1).is_distinct
    assert not verdict(base, arm, num_arms=50).is_distinct


@pytest.mark.parametrize(("n", "is_enough"), [(2, False), (5, False), (6, True)])
def test_differences_without_spread_are_judged_by_their_sign(n: int, is_enough: bool) -> None:
    assert is_distinct([3.0] * n) is is_enough  # 2 ** (1 - 6) = 0.03125 is the first below 0.05
    assert not is_distinct([0.0] * n)


def test_the_level_is_kept() -> None:
    """Of samples whose true mean is 0 the 95 % interval misses it in one of twenty, within five standard errors."""
    draw = random.Random(20)
    trials = 2000
    misses = sum(is_distinct([draw.gauss(0, 1) for _ in range(5)]) for _ in range(trials))
    assert abs(misses / trials - 0.05) < 5 * math.sqrt(0.05 * 0.95 / trials)
