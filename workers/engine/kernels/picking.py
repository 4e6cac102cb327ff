"""The rule of `workers.engine.sampler`, a row at a time, without the noise of tokens that cannot win."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import prange
from numpy.typing import NDArray

from workers.engine.kernels.compiled import compiled, parallel, threads_for
from workers.engine.kernels.noise import gumbel_of, uniform, words_of

_BLOCK: Final = 256
# The quick comparison is right to about 1e-6; what comes this close to the best is computed exactly.
_CLOSE: Final = 1 + 1e-4


@dataclass(frozen=True, slots=True)
class Draws:
    """What each row draws: nothing, where it is greedy."""

    is_greedy: NDArray[np.bool_]  # (rows,)
    seeds: NDArray[np.uint64]
    positions: NDArray[np.uint64]


def pick(
    logits: NDArray[np.float32],
    weights: NDArray[np.float32],
    best: NDArray[np.float64],
    log_total: NDArray[np.float64],
    draws: Draws,
) -> NDArray[np.int64]:
    """A token id for each row of a distribution's numbers (see `logits.distribution`): (rows,)."""
    picked = np.empty(len(logits), np.int64)
    with threads_for(len(logits)):
        _pick_rows(logits, weights, best, log_total, draws.is_greedy, draws.seeds, draws.positions, picked)
    return picked


@parallel
def _pick_rows(
    logits: Any, weights: Any, best: Any, log_total: Any, is_greedy: Any, seeds: Any, positions: Any, picked: Any
) -> None:
    for row in prange(len(logits)):
        if is_greedy[row]:
            picked[row] = _largest(logits[row])
        else:
            picked[row] = _winner(logits[row], weights[row], best[row], log_total[row], seeds[row], positions[row])


@compiled
def _largest(logits: Any) -> int:
    """The first of the largest."""
    largest = 0
    for i in range(logits.size):
        if logits[i] > logits[largest]:
            largest = i
    return largest


@compiled
def _winner(logits: Any, weights: Any, best: Any, log_total: Any, seed: Any, position: Any) -> int:
    """The first of the tokens with the largest log p + G.

    The largest log p - log(-log u) is the smallest (-log u) / p, and p is in proportion to the weight. As -log u >
    1 - u, few tokens need their logarithm, and fewer still their exact noise. A removed token's weight is too small for
    either.
    """
    words = np.empty(_BLOCK, np.uint32)
    lead = np.array([np.inf, -np.inf, 0.0])  # what (-log u) / weight has to stay below, the best score, its id
    for start in range(0, weights.size, _BLOCK):
        block = weights[start : start + _BLOCK]
        words_of(seed, position, start, words)
        # The compiler vectorizes this loop as long as the other one is a function of its own.
        if _num_quick(words, block, lead[0]) > 0:
            _race(words, block, logits[start:], best, log_total, seed, position, start, lead)
    return int(lead[2])


@compiled
def _race(
    words: Any, weights: Any, logits: Any, best: Any, log_total: Any, seed: Any, position: Any, start: int, lead: Any
) -> None:
    """Let the tokens `start` and on of a block try for the lead."""
    for i in range(weights.size):
        u = uniform(words[i])
        limit = lead[0] * weights[i]
        if 1.0 - u <= limit and -np.log(u) <= limit:
            lead[0] = min(lead[0], -np.log(u) / weights[i] * _CLOSE)
            score = (np.float64(logits[i]) - best) - log_total + gumbel_of(seed, position, start + i)
            if score > lead[1]:
                lead[1] = score
                lead[2] = start + i


@compiled
def _num_quick(words: Any, weights: Any, limit: Any) -> int:
    """How many tokens of a block might stay below the limit."""
    num = 0
    for i in range(weights.size):
        num += 1.0 - uniform(words[i]) <= limit * np.float64(weights[i])
    return num
