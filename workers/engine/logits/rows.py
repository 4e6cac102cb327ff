"""One row of a batch, and row-wise arithmetic whose result does not depend on the other rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.sampling import Scope, Settings
from workers.engine.kernels import compiled

FLOAT32_MAX = torch.finfo(torch.float32).max
FLOAT32_TINY = torch.finfo(torch.float32).tiny  # the smallest normal number
# e to this is still a normal float32. Exponentials that are not, minus infinity's too, take 10 times as long, and are
# too small to change any sum that has a 1 in it.
LEAST_EXPONENT = -87.0


@dataclass(frozen=True, slots=True)
class Row:
    """What the stages know of one run at one position.

    `prompt_ids` and `output_ids` are sequences of token ids; int64 arrays are used as they are, others are copied at
    every step.
    """

    settings: Settings
    prompt_ids: Sequence[int] | NDArray[np.int64]
    output_ids: Sequence[int] | NDArray[np.int64]
    banned_ids: frozenset[int] = frozenset()
    end_token_ids: frozenset[int] = frozenset()  # of the checkpoint; `min_tokens` holds them back
    allowed: NDArray[np.bool_] | None = None  # (vocab,): what the constraint of the settings allows; needed with one

    def history(self, scope: Scope) -> NDArray[np.int64]:
        """The token ids that a penalty of this scope counts, in their order."""
        output = np.asarray(self.output_ids, dtype=np.int64)
        if scope is Scope.OUTPUT:
            return output
        return np.concatenate([np.asarray(self.prompt_ids, dtype=np.int64), output])


def row_sums(values: Tensor) -> Tensor:
    """Sums of (rows, vocab) over the vocabulary: (rows,), in the order that one thread takes.

    torch splits a sum over threads, and so changes its last bits, where the result is a single number. A second,
    identical row keeps it from that: a row alone and the same row in a batch have the same sum.
    """
    if values.shape[0] == 1:
        return values.expand(2, -1).sum(dim=-1)[:1]
    return values.sum(dim=-1)


def row_counts(mask: Tensor) -> Tensor:
    """How many of (rows, vocab) are true: (rows,) int64. On a CPU NumPy counts 10 times faster."""
    if compiled.is_for(mask):
        return torch.from_numpy(np.array([np.count_nonzero(row) for row in mask.numpy()]))
    return mask.sum(dim=-1)


def masked_sums(values: Tensor, mask: Tensor) -> Tensor:
    """Sums of what `mask` marks of (rows, vocab), added up in float64: (rows,). Quick where little is marked."""
    if compiled.is_for(values):
        pairs = zip(values.numpy(), mask.numpy(), strict=True)
        return torch.from_numpy(np.array([row[marked].sum(dtype=np.float64) for row, marked in pairs]))
    return (values * mask).sum(dim=-1, dtype=torch.float64)


def sorted_values(values: Tensor) -> Tensor:
    """(rows, vocab), each row ascending. On a CPU NumPy sorts values alone 20 times faster than torch sorts pairs."""
    if compiled.is_for(values):
        return torch.from_numpy(np.sort(values.numpy(), axis=-1))
    return torch.sort(values, dim=-1).values


def kth_largest(values: Tensor, ks: Sequence[int]) -> Tensor:
    """The k-th largest of each row of (rows, vocab), each row with its own k: (rows, 1)."""
    places = [values.shape[1] - k for k in ks]
    if compiled.is_for(values):
        found = [np.partition(row, place)[place] for row, place in zip(values.numpy(), places, strict=True)]
        return column(found, values)
    index = torch.tensor(places, device=values.device).unsqueeze(1)
    return torch.sort(values, dim=-1).values.gather(1, index)


def sorting_order(values: Tensor) -> Tensor:
    """The indices (rows, vocab) that sort each row ascending; equal values in any order."""
    if compiled.is_for(values):
        return torch.from_numpy(np.argsort(values.numpy(), axis=-1))
    return torch.sort(values, dim=-1).indices


def column(numbers: Sequence[float], like: Tensor) -> Tensor:
    """One number a row as (rows, 1), in the type and on the device of `like`."""
    return torch.tensor(numbers, dtype=like.dtype, device=like.device).unsqueeze(1)
