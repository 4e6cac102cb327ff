"""The noise of `workers.engine.noise`, bit for bit, one token at a time: what a CPU draws in a step.

The compiler fuses no multiplication with an addition unless it is told to, so every operation is rounded as there.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from workers.engine import noise
from workers.engine.kernels.compiled import compiled
from workers.engine.kernels.lanes import float64_of_bits, int64_of_bits

_MASK: Final = np.uint64(0xFFFFFFFF)
_32: Final = np.uint64(32)
_MULTIPLIER_0: Final = np.uint64(noise.MULTIPLIER_0)
_MULTIPLIER_1: Final = np.uint64(noise.MULTIPLIER_1)
_WEYL_0: Final = np.uint64(noise.WEYL_0)
_WEYL_1: Final = np.uint64(noise.WEYL_1)
_TWO_TO_MINUS_32: Final = noise.TWO_TO_MINUS_32
_SQRT_HALF_BITS: Final = np.int64(noise.SQRT_HALF_BITS)
_EXPONENT_FIELD: Final = np.int64(noise.EXPONENT_FIELD)
_MANTISSA_BITS: Final = np.int64(noise.MANTISSA_BITS)
_LN2_HIGH: Final = noise.LN2_HIGH
_LN2_LOW: Final = noise.LN2_LOW
_RECIPROCALS: Final = tuple(1.0 / divisor for divisor in noise.ATANH_DIVISORS)


def gumbel(
    seeds: NDArray[np.uint64], positions: NDArray[np.uint64], token_ids: NDArray[np.int64]
) -> NDArray[np.float64]:
    """G for each of `token_ids` (rows, n), a seed and a position for each row: the bits of `noise.gumbel_numpy`."""
    drawn = np.empty(token_ids.shape, np.float64)
    _gumbel_of_rows(seeds, positions, token_ids, drawn)
    return drawn


@compiled
def _gumbel_of_rows(seeds: Any, positions: Any, token_ids: Any, drawn: Any) -> None:
    for row in range(len(token_ids)):
        for i in range(token_ids.shape[1]):
            drawn[row, i] = gumbel_of(seeds[row], positions[row], token_ids[row, i])


@compiled
def gumbel_of(seed: Any, position: Any, token_id: int) -> Any:
    """G of one token."""
    four = words(position, np.uint64(token_id // 4), seed & _MASK, seed >> _32)
    lane = token_id % 4
    word = four[0] if lane == 0 else (four[1] if lane == 1 else (four[2] if lane == 2 else four[3]))
    return -_log(-_log(uniform(word)))


@compiled
def words_of(seed: Any, position: Any, first: int, out: Any) -> None:
    """The words of tokens `first` (a multiple of 4) and on into `out` (4 n,)."""
    low, high = seed & _MASK, seed >> _32
    for block in range(out.size // 4):
        four = words(position, np.uint64(first // 4 + block), low, high)
        out[4 * block] = four[0]
        out[4 * block + 1] = four[1]
        out[4 * block + 2] = four[2]
        out[4 * block + 3] = four[3]


@compiled
def words(position: Any, block: Any, low: Any, high: Any) -> Any:
    """The four words of Philox4x32-10 for counter (position, block, 0, 0)."""
    c0, c1, c2, c3 = position, block, np.uint64(0), np.uint64(0)
    for number in range(10):
        if number:
            low = (low + _WEYL_0) & _MASK
            high = (high + _WEYL_1) & _MASK
        product_0 = c0 * _MULTIPLIER_0
        product_1 = c2 * _MULTIPLIER_1
        c0, c1 = (product_1 >> _32) ^ c1 ^ low, product_1 & _MASK
        c2, c3 = (product_0 >> _32) ^ c3 ^ high, product_0 & _MASK
    return c0, c1, c2, c3


@compiled
def _log(x: Any) -> Any:
    """`noise.log` of one number."""
    bits = int64_of_bits(x)
    offset = bits - _SQRT_HALF_BITS
    k = np.float64(offset >> _MANTISSA_BITS)
    z = float64_of_bits(bits - (offset & _EXPONENT_FIELD))
    s = (z - 1.0) / (z + 1.0)
    square = s * s
    total = square * _RECIPROCALS[0]
    for reciprocal in _RECIPROCALS[1:]:
        total = (total + reciprocal) * square
    return k * _LN2_HIGH + (k * _LN2_LOW + (s + s + (s + s) * total))


@compiled
def uniform(word: Any) -> Any:
    """u of one word."""
    return (np.float64(word) + 0.5) * _TWO_TO_MINUS_32
