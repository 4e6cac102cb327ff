"""The numbers of the tokens that a ledger shows, gathered on a CPU and put into order."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.engine.kernels.compiled import compiled
from workers.engine.kernels.noise import gumbel_of

# Columns of a listing's numbers.
ID, RAW, PROCESSED, STAGE, PENALTY, NOISE = range(6)


@dataclass(frozen=True, slots=True)
class Logprobs:
    """What log-probabilities of single tokens are made of; see `logits.distribution`."""

    logits: NDArray[np.float32]  # (rows, vocab)
    best: NDArray[np.float64]  # (rows,)
    log_total: NDArray[np.float64]  # (rows,)


def gather(
    shown: NDArray[np.int64],
    raw: Logprobs,
    processed: Logprobs,
    removed_by: NDArray[np.int8],
    penalty: NDArray[np.float32],
) -> NDArray[np.float64]:
    """For the tokens `shown` (rows, n) the columns ID to PENALTY: (rows, n, 5)."""
    numbers = np.empty((*shown.shape, NOISE))
    _gather(
        shown, raw.logits, raw.best, raw.log_total, processed.logits, processed.best, processed.log_total, removed_by,
        penalty, numbers,
    )  # fmt: skip
    return numbers


def arrange(
    numbers: NDArray[np.float64],
    alternatives: NDArray[np.int64],
    seeds: NDArray[np.uint64],
    positions: NDArray[np.uint64],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The candidates of each row, by raw log-probability, then id, and how many they are.

    `numbers` (rows, 1 + 2 n, columns up to PENALTY): of the chosen token, n that are largest before the stages and n
    that are after them. A row shows the first `alternatives` of both, a token once, and of the second only what is
    kept. Returns (rows, 1 + 2 n, columns up to NOISE), each row filled from its beginning.
    """
    arranged = np.zeros((*numbers.shape[:2], NOISE + 1))
    nums = np.empty(len(numbers), np.int64)
    _arrange(np.ascontiguousarray(numbers), alternatives, seeds, positions, arranged, nums)
    return arranged, nums


@compiled
def _gather(
    shown: Any, raw: Any, raw_best: Any, raw_log_total: Any, processed: Any, best: Any, log_total: Any,
    removed_by: Any, penalty: Any, numbers: Any
) -> None:  # fmt: skip
    for row in range(shown.shape[0]):
        for place in range(shown.shape[1]):
            token_id = shown[row, place]
            mine = numbers[row, place]
            mine[ID] = token_id
            mine[RAW] = (np.float64(raw[row, token_id]) - raw_best[row]) - raw_log_total[row]
            mine[PROCESSED] = (np.float64(processed[row, token_id]) - best[row]) - log_total[row]
            mine[STAGE] = removed_by[row, token_id]
            mine[PENALTY] = penalty[row, token_id]


@compiled
def _arrange(numbers: Any, alternatives: Any, seeds: Any, positions: Any, arranged: Any, nums: Any) -> None:
    num_top = numbers.shape[1] // 2
    for row in range(numbers.shape[0]):
        found = 0
        for place in range(numbers.shape[1]):
            mine = numbers[row, place]
            is_late = place > num_top
            index = place - 1 - num_top if is_late else place - 1
            if index >= alternatives[row] or (is_late and mine[PROCESSED] == -np.inf):
                continue
            found = _insert(arranged[row], found, mine)
        for place in range(found):
            arranged[row, place, NOISE] = gumbel_of(seeds[row], positions[row], np.int64(arranged[row, place, ID]))
        nums[row] = found


@compiled
def _insert(listed: Any, found: int, mine: Any) -> Any:
    """Put a token into its place among the first `found` ones, unless it is there already."""
    place = found
    while place > 0 and (
        listed[place - 1, RAW] < mine[RAW] or (listed[place - 1, RAW] == mine[RAW] and listed[place - 1, ID] > mine[ID])
    ):
        place -= 1
    if place > 0 and listed[place - 1, ID] == mine[ID]:
        return found
    for later in range(found, place, -1):
        listed[later] = listed[later - 1]
    listed[place, :NOISE] = mine
    return found + 1
