"""Stages that remove single tokens by a rule: banned ids, repeated n-grams, end tokens before `min_tokens`.

Each gives the tokens that it would remove, (rows, vocab) of bool. These may be all that are left; the pipeline then
keeps the best one.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from models.sampling import Scope
from workers.engine.logits.penalties import IntArray, Places
from workers.engine.logits.rows import Row


def banned(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """The ids that the caller has banned, a banned string's one id included."""
    return _mask([_array(row.banned_ids) for row in rows], scores)


def no_repeat_ngram(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Ids that would complete an n-gram that prompt and output already hold."""
    return _mask([completions(row.history(Scope.ALL), row.settings.no_repeat_ngram_size) for row in rows], scores)


def min_tokens(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """End and stop tokens, while the output is shorter than `min_tokens`."""
    return _mask([_array(row.end_token_ids) for row in rows], scores)


def completions(history: IntArray, size: int) -> IntArray:
    """Every id that follows, somewhere in `history`, the `size - 1` ids that `history` ends with."""
    num_before = size - 1
    if num_before > history.size:
        return history[:0]
    ends = np.arange(num_before, history.size)  # places that have `num_before` ids in front of them
    for back in range(1, num_before + 1):
        if not ends.size:
            break
        ends = ends[history[ends - back] == history[-back]]
    return history[ends]


def _mask(ids_by_row: Sequence[IntArray], scores: Tensor) -> Tensor:
    places = Places.of(ids_by_row, scores)
    mask = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    mask[places.rows, places.token_ids] = True
    return mask


def _array(ids: frozenset[int]) -> IntArray:
    return np.fromiter(ids, dtype=np.int64, count=len(ids))
