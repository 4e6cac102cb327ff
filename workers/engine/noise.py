"""The random numbers of picking: Gumbel noise that depends on seed, position and token id, and on nothing else.

    x = lane (id mod 4) of Philox4x32-10, counter words (position, id div 4, 0, 0), key words (seed low, seed high)
    u = (x + 0.5) / 2^32                    exact in float64, never 0 or 1
    G = -log(-log u)

Words are 32 bits, the first is the least significant (Random123's layout). Philox: Salmon, Moraes, Dror and Shaw,
"Parallel random numbers: as easy as 1, 2, 3" (2011).

The bits are equal in NumPy, torch on a CPU and torch on an accelerator by construction: one formula serves all, and it
uses only integer operations and the float64 operations that IEEE 754 rounds in one way: + - * and / of two arrays.
Library logarithms differ between platforms in the last bit, so `log` is written out. Fused multiply-add would change
bits too: these functions are not for a compiler that fuses.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = TypeVar("Array", NDArray[Any], Tensor)
Words = tuple[Array, Array, Array, Array]

_MASK: Final = 0xFFFFFFFF
MULTIPLIER_0: Final = 0xD2511F53
MULTIPLIER_1: Final = 0xCD9E8D57
WEYL_0: Final = 0x9E3779B9  # golden ratio
WEYL_1: Final = 0xBB67AE85  # sqrt(3) - 1
NUM_ROUNDS: Final = 10
NUM_LANES: Final = 4

TWO_TO_MINUS_32: Final = 2.0**-32
SQRT_HALF_BITS: Final = 0x3FE6A09E667F3BCD  # the float64 nearest to sqrt(1/2)
EXPONENT_FIELD: Final = ~0xFFFFFFFFFFFFF  # sign and exponent of a float64
MANTISSA_BITS: Final = 52
# ln 2 in two parts: the first has its last 21 bits zero, so that its product with an exponent is exact.
LN2_HIGH: Final = float.fromhex("0x1.62e42fee00000p-1")
LN2_LOW: Final = float.fromhex("0x1.a39ef35793c76p-33")
# atanh(s) = s + s^3/3 + s^5/5 + ...: with |s| <= 0.172 the first term left out is below 2^-60 of the sum.
ATANH_DIVISORS: Final = (21, 19, 17, 15, 13, 11, 9, 7, 5, 3)


def philox(counter: Words[Array], key: tuple[Array, Array]) -> Words[Array]:
    """Philox4x32-10 on int64 arrays that hold 32-bit words and broadcast against each other."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for number in range(NUM_ROUNDS):
        if number:
            k0 = (k0 + WEYL_0) & _MASK
            k1 = (k1 + WEYL_1) & _MASK
        product_0 = c0 * MULTIPLIER_0  # wraps into the sign bit; the masks below drop what the shift drags in
        product_1 = c2 * MULTIPLIER_1
        c0, c1 = ((product_1 >> 32) & _MASK) ^ c1 ^ k0, product_1 & _MASK
        c2, c3 = ((product_0 >> 32) & _MASK) ^ c3 ^ k1, product_0 & _MASK
    return c0, c1, c2, c3


def gumbel_numpy(seed: int, position: int, token_ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """G for each of `token_ids` (int64, (n,)) at one position of the run with this 64-bit seed."""
    zero, place, low, high = (np.array([word], dtype=np.int64) for word in _scalars(seed, position))
    words = philox((place, token_ids // NUM_LANES, zero, zero), (low, high))
    lanes = np.stack(np.broadcast_arrays(*words))  # (lanes, n)
    return _gumbel(lanes[token_ids % NUM_LANES, np.arange(token_ids.size)])


def gumbel(seed: int, position: int, token_ids: Tensor) -> Tensor:
    """G for each of `token_ids` (int64, (n,)) on their device: the bits of `gumbel_numpy`."""
    zero, place, low, high = (torch.tensor([word], device=token_ids.device) for word in _scalars(seed, position))
    words = philox((place, token_ids // NUM_LANES, zero, zero), (low, high))
    lanes = torch.stack([word.expand_as(token_ids) for word in words])  # (lanes, n)
    return _gumbel(lanes.gather(0, (token_ids % NUM_LANES).unsqueeze(0)).squeeze(0))


def gumbel_rows(seeds: Sequence[int], positions: Sequence[int], vocab_size: int, *, device: torch.device) -> Tensor:
    """G for every token id of every row: float64 (rows, vocab). Row i belongs to seeds[i] at positions[i]."""
    columns = zip(*(_scalars(s, p) for s, p in zip(seeds, positions, strict=True)), strict=True)
    zero, place, low, high = (torch.tensor(column, device=device).unsqueeze(1) for column in columns)  # (rows, 1)
    blocks = torch.arange(_num_blocks(vocab_size), device=device)
    words = philox((place, blocks, zero, zero), (low, high))
    lanes = torch.stack([word.expand(len(seeds), blocks.numel()) for word in words], dim=-1)
    return _gumbel(lanes.flatten(1)[:, :vocab_size].contiguous())


def log(x: Array) -> Array:
    """Natural logarithm of positive, normal float64 numbers, within 2 units in the last place, from exact operations.

    x = z 2^k with z in [sqrt(1/2), sqrt(2)), taken from the bits of x; log z = 2 atanh((z - 1) / (z + 1)).
    """
    bits = _bits(x)
    offset = bits - SQRT_HALF_BITS
    k = _float64(offset >> MANTISSA_BITS)
    z = _float64_of_bits(bits - (offset & EXPONENT_FIELD))
    s = (z - 1.0) / (z + 1.0)
    square = s * s
    total = square * (1.0 / ATANH_DIVISORS[0])
    for divisor in ATANH_DIVISORS[1:]:
        total = (total + 1.0 / divisor) * square
    result: Array = k * LN2_HIGH + (k * LN2_LOW + (s + s + (s + s) * total))
    return result


def _gumbel(x: Array) -> Array:
    u: Array = (_float64(x) + 0.5) * TWO_TO_MINUS_32
    return -log(-log(u))


def _scalars(seed: int, position: int) -> tuple[int, int, int, int]:
    """The counter words that do not depend on the token, and the key words."""
    return 0, position, seed & _MASK, seed >> 32


def _num_blocks(vocab_size: int) -> int:
    return -(-vocab_size // NUM_LANES)


def _float64(x: Array) -> Array:
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x.double()


def _bits(x: Array) -> Array:
    return x.view(np.int64) if isinstance(x, np.ndarray) else x.view(torch.int64)


def _float64_of_bits(x: Array) -> Array:
    return x.view(np.float64) if isinstance(x, np.ndarray) else x.view(torch.float64)
