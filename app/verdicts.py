"""Several seeds of an arm: what its figures are, and whether they differ from the baseline's at all.

An arm's figure is the mean over its seeds with a 95 % interval of Student's t. Two arms are compared seed by seed:
those that share their noise share what it brings, so the mean of the paired differences is known far better than
either mean. The intervals of differences are simultaneous (Bonferroni): each has the level 1 - 0.05 / (arms compared
* figures), so that all of them together hold with 95 % and a table of sixty arms does not show three discoveries by
chance. Where such an interval contains 0 the arms are not distinguishable at this number of seeds, and nothing more
is claimed.

Sources: W. S. Gosset, "The probable error of a mean", 1908; for the distribution with whole degrees of freedom
M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final

LEVEL: Final = 0.95
_T_TOP: Final = 1e9  # beyond any quantile that is asked for


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over `n` values and where the true one lies, in the unit of the values."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Difference:
    """How one figure of an arm differs from the baseline's, over the seeds that both have ended."""

    figure: str
    interval: Interval | None  # None for fewer than two pairs
    is_distinct: bool  # whether the data rule out that it is 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """All judged figures of one arm against the baseline. `n`: the fewest pairs that a figure has."""

    differences: tuple[Difference, ...]
    n: int

    @property
    def is_distinct(self) -> bool:
        return any(difference.is_distinct for difference in self.differences)


Samples = Mapping[int, float]
"""One figure of one arm: sample index -> value, for the seeds that have one."""


def interval(values: Sequence[float], *, level: float = LEVEL) -> Interval | None:
    """Student's t interval of the mean: mean ± t(n - 1) * s / sqrt(n). None for fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    mean = fmean(values)
    half = t_quantile((1 + level) / 2, n - 1) * stdev(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def verdict(base: Mapping[str, Samples], arm: Mapping[str, Samples], *, num_arms: int) -> Verdict:
    """The figures of `arm` against those of `base`, seed by seed; both name the same figures.

    `num_arms` arms are compared with the baseline, this one among them.
    """
    level = 1 - (1 - LEVEL) / (num_arms * len(base))
    pairs = {name: _paired(values, arm[name]) for name, values in base.items()}
    found = tuple(
        Difference(name, interval(values, level=level), is_distinct(values, level=level))
        for name, values in pairs.items()
    )
    return Verdict(found, min((len(values) for values in pairs.values()), default=0))


def is_distinct(differences: Sequence[float], *, level: float = LEVEL) -> bool:
    """Whether the mean difference is not 0, at this level.

    Without any spread a t interval has no width however few the values are; then the sign test judges: n differences
    of one sign come about by chance with probability 2 ** (1 - n).
    """
    found = interval(differences, level=level)
    if found is None or found.low <= 0 <= found.high:
        return False
    return found.low < found.high or 2.0 ** (1 - found.n) <= 1 - level


def t_quantile(probability: float, degrees: int) -> float:
    """The t with P(T <= t) = `probability`, for 0.5 <= `probability` < 1 and whole `degrees` of freedom >= 1."""
    low, high = 0.0, _T_TOP
    while (middle := (low + high) / 2) not in (low, high):
        if t_probability(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return high


def t_probability(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0, as the finite sum that it is for whole degrees of freedom."""
    theta = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    is_odd = degrees % 2
    term = total = (cosine if is_odd else 1.0) if degrees > 1 else 0.0
    for i in range(2 if is_odd else 1, degrees - 1, 2):
        term *= cosine * cosine * i / (i + 1)
        total += term
    between = 2 / math.pi * (theta + sine * total) if is_odd else sine * total
    return 0.5 + between / 2


def _paired(base: Samples, arm: Samples) -> list[float]:
    return [arm[i] - base[i] for i in sorted(base.keys() & arm.keys())]
