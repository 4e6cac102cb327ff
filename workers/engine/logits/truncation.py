"""Stages that cut the distribution's tail: temperature before them, then top_k, top_p, min_p and typical.

Each of the four gives the tokens that it would remove, (rows, vocab) of bool, and never all of a row. They take the
float32 steps of transformers' warpers, so that the kept sets are equal, borders included. The one exception: where
top_p's border falls between equal logits, transformers keeps whichever its unstable sort puts last, and this one keeps
as many, those with the lowest ids, on every device.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from workers.engine.kernels import compiled, cutting
from workers.engine.kernels.nucleus import below, borders
from workers.engine.logits.rows import (
    FLOAT32_MAX,
    FLOAT32_TINY,
    LEAST_EXPONENT,
    Row,
    column,
    kth_largest,
    row_counts,
    row_sums,
    sorted_values,
    sorting_order,
)

Truncation = Callable[[Tensor, Sequence[Row]], Tensor]

# Below this, an ordinary logit divided by the temperature leaves float32.
_SMALL_TEMPERATURE = 1e-30


def temperature(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """z / T, for T > 0; removed tokens stay removed. Returns new scores (rows, vocab)."""
    temperatures = [max(row.settings.temperature, FLOAT32_TINY) for row in rows]
    is_small = min(temperatures) < _SMALL_TEMPERATURE
    if compiled.is_for(scores) and not is_small:
        return torch.from_numpy(cutting.scaled(scores.numpy(), np.array(temperatures, np.float32)))
    is_removed = scores == -torch.inf
    if is_small:
        # The best token at 0 leaves the distribution as it is, and everything else can only underflow.
        scores = scores - scores.amax(dim=-1, keepdim=True)
    scaled = scores / column(temperatures, scores)
    scaled.clamp_(-FLOAT32_MAX, FLOAT32_MAX)
    return scaled.masked_fill_(is_removed, -torch.inf)


def top_k(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Everything below the k-th largest logit; equals of the k-th stay. k over the vocabulary means all of it."""
    return scores < kth_largest(scores, [min(row.settings.top_k, scores.shape[1]) for row in rows])


def top_p(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Everything outside the smallest set of most probable tokens whose mass reaches p.

    From the least probable on, tokens are removed while their mass together is at most 1 - p; the last one stays.
    """
    limits = [1 - row.settings.top_p for row in rows]
    if compiled.is_for(scores):
        found = borders(scores.numpy(), np.array(limits, np.float32))
        if found.is_sure.all():
            return torch.from_numpy(below(scores.numpy(), found))
    return top_p_by_sorting(scores, column(limits, scores))


def top_p_by_sorting(scores: Tensor, limit: Tensor) -> Tensor:
    """`limit` (rows, 1): what the mass of the removed tokens may be."""
    ascending = sorted_values(scores)
    mass = ascending.softmax(dim=-1).cumsum(dim=-1)
    num_removed = row_counts(mass <= limit).clamp_(max=scores.shape[1] - 1).unsqueeze(1)
    border = ascending.gather(1, num_removed)
    removed = scores < border
    num_equals_removed = num_removed - row_counts(removed).unsqueeze(1)
    if bool((num_equals_removed > 0).any()):
        equals = scores == border
        place_from_end = equals.flip(-1).cumsum(dim=-1).flip(-1)
        removed |= equals & (place_from_end <= num_equals_removed)
    return removed


def min_p(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Everything less probable than `min_p` times the most probable token."""
    probs = scores.softmax(dim=-1)
    share = column([row.settings.min_p for row in rows], scores)
    return probs < share * probs.amax(dim=-1, keepdim=True)


def typical(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Everything outside the locally typical set (Meister et al. 2022).

    Tokens are taken in the order of |-log p - H|, until their mass reaches `typical_p`; equals of the last one stay.
    """
    logprobs = scores.log_softmax(dim=-1)
    finite = logprobs.clamp_min(LEAST_EXPONENT)
    entropy = -row_sums(finite * finite.exp()).unsqueeze(1)
    distance = (-logprobs - entropy).abs()
    order = sorting_order(distance)
    mass = scores.gather(1, order).softmax(dim=-1).cumsum(dim=-1)
    share = column([row.settings.typical_p for row in rows], scores)
    last = row_counts(mass < share).clamp_(max=scores.shape[1] - 1).unsqueeze(1)
    return distance > distance.gather(1, order.gather(1, last))
