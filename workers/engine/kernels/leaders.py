"""The largest logits of each row, and the places of single ones, by looking at every logit once."""

from typing import Any, Final

import numpy as np
from numba import prange
from numpy.typing import NDArray

from workers.engine.kernels.compiled import compiled, parallel, threads_for

_BLOCK: Final = 64


def leaders(logits: NDArray[np.float32], num: int) -> NDArray[np.int64]:
    """The ids (rows, num) of the `num` largest of each row of (rows, vocab), largest first; of equals the lowest id."""
    ids = np.empty((len(logits), num), np.int64)
    if num:
        with threads_for(len(logits)):
            _leaders_of_rows(np.ascontiguousarray(logits), ids)
    return ids


def ranks(logits: NDArray[np.float32], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """One more than the number of logits of a row that are larger than that of its `chosen` (rows,) id: (rows,)."""
    places = np.empty(len(logits))
    with threads_for(len(logits)):
        _ranks_of_rows(np.ascontiguousarray(logits), chosen, places)
    return places


@parallel
def _leaders_of_rows(logits: Any, ids: Any) -> None:
    for row in prange(len(logits)):
        _leaders_of(logits[row], ids[row])


@parallel
def _ranks_of_rows(logits: Any, chosen: Any, places: Any) -> None:
    for row in prange(len(logits)):
        places[row] = 1.0 + _num_above(logits[row], logits[row, chosen[row]])


@compiled
def _num_above(logits: Any, value: Any) -> Any:
    num = 0
    for i in range(logits.size):
        num += logits[i] > value
    return num


@compiled
def _leaders_of(logits: Any, ids: Any) -> None:
    num = ids.size
    values = np.full(num, -np.inf, np.float32)
    found = 0
    for start in range(0, logits.size, _BLOCK):
        block = logits[start : start + _BLOCK]
        if found == num and _num_above(block, values[-1]) == 0:
            continue
        for i in range(block.size):
            if found < num or block[i] > values[-1]:
                found = _take(values, ids, found, block[i], start + i)


@compiled
def _take(values: Any, ids: Any, found: int, value: Any, token_id: int) -> Any:
    """Put a logit behind all that are as large, and drop the last one where there are too many."""
    place = min(found, values.size - 1)
    while place > 0 and values[place - 1] < value:
        values[place] = values[place - 1]
        ids[place] = ids[place - 1]
        place -= 1
    values[place] = value
    ids[place] = token_id
    return min(found + 1, values.size)
