"""The exponentials of a distribution and their sums: what a CPU does for `Distribution.of`."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import prange
from numpy.typing import NDArray

from workers.engine.kernels.compiled import compiled, parallel, reordering, threads_for
from workers.engine.kernels.exponential import exp

_LANES: Final = 64  # the compiler sees that a loop of this length has no order
_LEAST_EXPONENT: Final = np.float32(-87.0)  # as in `logits.rows`, for the same reason


@dataclass(frozen=True, slots=True)
class Weighed:
    """Each row on its own: a row's numbers are the same in any batch."""

    weights: NDArray[np.float32]  # (rows, vocab): e^(z - best), e^-87 at least
    total: NDArray[np.float64]  # (rows,): sum of the weights
    best: NDArray[np.float64]  # (rows,): the largest logit z
    log_total: NDArray[np.float64]  # (rows,)
    entropy: NDArray[np.float64]  # (rows,)


def weigh(logits: NDArray[np.float32]) -> Weighed:
    """`logits`: (rows, vocab). Of a row with NaN or no finite largest number, `best` or `entropy` is not finite."""
    num_rows = len(logits)
    total, best, log_total, entropy = np.empty((4, num_rows))
    weighed = Weighed(np.empty(logits.shape, np.float32), total, best, log_total, entropy)
    with threads_for(num_rows):
        _weigh_rows(np.ascontiguousarray(logits), weighed.weights, total, best, log_total, entropy)
    return weighed


@parallel
def _weigh_rows(logits: Any, weights: Any, total: Any, best: Any, log_total: Any, entropy: Any) -> None:
    for row in prange(len(logits)):
        largest = largest_of(logits[row])
        exponentials(logits[row], largest, weights[row])
        total[row], weighted = sums(logits[row], largest, weights[row])
        best[row] = largest
        log_total[row] = np.log(total[row])
        # H = -sum p log p with log p = (z - best) - log_total
        entropy[row] = log_total[row] - weighted / total[row]


@compiled
def largest_of(values: Any) -> Any:
    """The largest of at least one number, none of them NaN."""
    largest = np.full(_LANES, values[0])
    num_whole = values.size - values.size % _LANES
    for start in range(0, num_whole, _LANES):
        for lane in range(_LANES):
            largest[lane] = values[start + lane] if values[start + lane] > largest[lane] else largest[lane]
    best = values[0]
    for value in largest:
        best = max(best, value)
    for i in range(num_whole, values.size):
        best = max(best, values[i])
    return best


@compiled
def _below(logit: Any, best: Any) -> Any:
    below = logit - best
    return _LEAST_EXPONENT if below < _LEAST_EXPONENT else below  # NaN stays


@compiled
def exponentials(logits: Any, best: Any, weights: Any) -> None:
    """e^(z - best) into `weights`."""
    for i in range(logits.size):
        weights[i] = exp(_below(logits[i], best))


@reordering
def sums(logits: Any, best: Any, weights: Any) -> Any:
    """The sum of the weights, and that of weight times (z - best)."""
    total, weighted = 0.0, 0.0
    for i in range(logits.size):
        total += np.float64(weights[i])
        weighted += np.float64(weights[i] * _below(logits[i], best))
    return total, weighted
