"""The border of top_p without sorting a vocabulary.

Passes over the weights halve the range of thresholds; the few tokens that are left between two of them are sorted.
`logits.truncation` defines the border by transformers' float32 sums. These here are in float64; where the two might
disagree, the border is not sure, and the caller sorts.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import prange
from numpy.typing import NDArray

from workers.engine.kernels.compiled import compiled, parallel, reordering, threads_for
from workers.engine.kernels.weighing import exponentials, largest_of, sums

_LANES: Final = 32
_NUM_HALVINGS: Final = 9
_MOST_BETWEEN: Final = 4096
# How far float32 sums over a vocabulary may be from the true ones: a part of the mass, and a part of 1.
_RELATIVE: Final = 1e-5
_ABSOLUTE: Final = 2e-7


@dataclass(frozen=True, slots=True)
class Borders:
    """For each row: what is below `border` goes, and of the tokens at it the last `num_at_border` by id."""

    border: NDArray[np.float32]
    num_at_border: NDArray[np.int64]
    is_sure: NDArray[np.bool_]


def borders(scores: NDArray[np.float32], limits: NDArray[np.float32]) -> Borders:
    """`scores` (rows, vocab); `limits` (rows,): how much probability may go at most."""
    num_rows = len(scores)
    found = Borders(np.empty(num_rows, np.float32), np.empty(num_rows, np.int64), np.zeros(num_rows, np.bool_))
    with threads_for(num_rows):
        _find(np.ascontiguousarray(scores), limits, found.border, found.num_at_border, found.is_sure)
    return found


def below(scores: NDArray[np.float32], found: Borders) -> NDArray[np.bool_]:
    """(rows, vocab): what the borders take away."""
    removed = np.empty(scores.shape, np.bool_)
    with threads_for(len(scores)):
        _mark(np.ascontiguousarray(scores), found.border, found.num_at_border, removed)
    return removed


@parallel
def _find(scores: Any, limits: Any, border: Any, num_at_border: Any, is_sure: Any) -> None:
    for row in prange(len(scores)):
        border[row], num_at_border[row], is_sure[row] = _border_of(scores[row], np.float64(limits[row]))


@parallel
def _mark(scores: Any, border: Any, num_at_border: Any, removed: Any) -> None:
    for row in prange(len(scores)):
        limit = border[row]
        for i in range(scores.shape[1]):
            removed[row, i] = scores[row, i] < limit
        i, num = scores.shape[1] - 1, num_at_border[row]
        while num > 0:
            if scores[row, i] == limit:
                removed[row, i] = True
                num -= 1
            i -= 1


@compiled
def _border_of(scores: Any, limit: float) -> Any:
    best = largest_of(scores)
    weights = np.empty(scores.size, np.float32)
    exponentials(scores, best, weights)
    total = sums(scores, best, weights)[0]
    allowed = limit * total
    # Of tokens below `low` all can go, of those below `high` not; the first are fewer than the vocabulary.
    low, high = allowed / scores.size, 2.0
    for _ in range(_NUM_HALVINGS):
        middle = np.sqrt(low * high)
        if _mass_below(weights, np.float32(middle)) <= allowed:
            low = middle
        else:
            high = middle
    lowest = np.float32(low)
    between = _scores_between(scores, weights, lowest, np.float32(high))
    if limit >= 1.0 or limit <= 0.0 or between.size == 0 or between.size > _MOST_BETWEEN:
        return best, 0, False
    between.sort()
    mass = _mass_below(weights, lowest)
    margin = (_RELATIVE * limit + _ABSOLUTE) * total
    weighed = np.empty_like(between)
    exponentials(between, best, weighed)
    for i in range(between.size):
        before = mass
        mass += np.float64(weighed[i])
        if mass > allowed:
            first = i
            while first > 0 and between[first - 1] == between[i]:
                first -= 1
            return between[i], i - first, allowed - before > margin and mass - allowed > margin
    return best, 0, False


@reordering
def _mass_below(weights: Any, threshold: Any) -> float:
    mass = 0.0
    for i in range(weights.size):
        mass += np.float64(weights[i] if weights[i] < threshold else np.float32(0))
    return mass


@compiled
def _scores_between(scores: Any, weights: Any, low: Any, high: Any) -> Any:
    """The scores of tokens from weight `low` up to `high`; more than `_MOST_BETWEEN` where there are."""
    found = np.empty(_MOST_BETWEEN + 1, np.float32)
    num = 0
    for start in range(0, weights.size, _LANES):
        block = weights[start : start + _LANES]
        inside = 0
        for i in range(block.size):
            inside += (block[i] >= low) & (block[i] < high)
        if inside == 0:
            continue
        for i in range(block.size):
            if low <= block[i] < high and num < found.size:
                found[num] = scores[start + i]
                num += 1
    return found[:num]
