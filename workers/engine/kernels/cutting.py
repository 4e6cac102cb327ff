"""Passes that change logits in place of several of torch's."""

from typing import Any, Final

import numpy as np
from numba import prange
from numpy.typing import NDArray

from workers.engine.kernels.compiled import parallel, reordering, threads_for

_MOST: Final = np.finfo(np.float32).max


def scaled(scores: NDArray[np.float32], temperatures: NDArray[np.float32]) -> NDArray[np.float32]:
    """`scores` (rows, vocab) divided by each row's temperature, kept within float32; minus infinity stays."""
    out = np.empty_like(scores)
    with threads_for(len(scores)):
        _scale(np.ascontiguousarray(scores), temperatures, out)
    return out


def take_away(
    removed: NDArray[np.bool_],
    is_kept: NDArray[np.bool_],
    logits: NDArray[np.float32],
    removed_by: NDArray[np.int8],
    *,
    code: int,
    weights: NDArray[np.float32],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Of what is kept take `removed` away: from `is_kept`, to minus infinity, with `code` as its stage; all (rows,
    vocab). Returns for each row how many are left and the sum of their `weights`."""
    num_left, mass_left = np.empty(len(removed), np.int64), np.empty(len(removed))
    with threads_for(len(removed)):
        _take_away(removed, is_kept, logits, removed_by, np.int8(code), weights, num_left, mass_left)
    return num_left, mass_left


@parallel
def _scale(scores: Any, temperatures: Any, out: Any) -> None:
    for row in prange(len(scores)):
        for i in range(scores.shape[1]):
            score = scores[row, i]
            quotient = min(max(score / temperatures[row], -_MOST), _MOST)
            out[row, i] = score if score == -np.inf else quotient


@parallel
def _take_away(
    removed: Any, is_kept: Any, logits: Any, removed_by: Any, code: Any, weights: Any, num_left: Any, mass_left: Any
) -> None:
    for row in prange(len(removed)):
        gone = removed[row]
        for i in range(gone.size):
            gone[i] = gone[i] & is_kept[row, i]
        for i in range(gone.size):
            is_kept[row, i] = is_kept[row, i] & ~gone[i]
        for i in range(gone.size):
            removed_by[row, i] = code if gone[i] else removed_by[row, i]
        for i in range(gone.size):
            logits[row, i] = -np.inf if gone[i] else logits[row, i]
        num_left[row], mass_left[row] = _left(is_kept[row], weights[row])


@reordering
def _left(is_kept: Any, weights: Any) -> Any:
    num, mass = 0, 0.0
    for i in range(is_kept.size):
        num += is_kept[i]
        mass += np.float64(weights[i] if is_kept[i] else np.float32(0))
    return num, mass
