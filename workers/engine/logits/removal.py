"""Stages that remove single tokens by a rule: banned ids, repeated n-grams, end tokens before `min_tokens`.

Each says which places it would remove. These may be all that are left of a row; the pipeline then keeps the best one.
"""

from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from models.sampling import Scope
from workers.engine.logits.penalties import IntArray, Places
from workers.engine.logits.rows import Row

Removal = Callable[[Tensor, Sequence[Row]], Places]


def banned(scores: Tensor, rows: Sequence[Row]) -> Places:
    """The ids that the caller has banned, a banned string's one id included."""
    return Places.of([_array(row.banned_ids) for row in rows], scores)


def no_repeat_ngram(scores: Tensor, rows: Sequence[Row]) -> Places:
    """Ids that would complete an n-gram that prompt and output already hold."""
    found = [completions(row.history(Scope.ALL), row.settings.no_repeat_ngram_size) for row in rows]
    return Places.of(found, scores)


def min_tokens(scores: Tensor, rows: Sequence[Row]) -> Places:
    """The checkpoint's end tokens, while the output is shorter than `min_tokens`."""
    return Places.of([_array(row.end_token_ids) for row in rows], scores)


def completions(history: IntArray, size: int) -> IntArray:
    """Every id that follows, somewhere in `history`, the `size - 1` ids that `history` ends with."""
    return np.unique(history[completion_places(history, size)])


def completion_places(history: IntArray, size: int) -> IntArray:
    """The places in `history` of those ids, ascending."""
    num_before = size - 1
    places = np.arange(num_before, history.size)  # those that have `num_before` ids in front of them
    for back in range(1, num_before + 1):
        if not places.size:
            break
        places = places[history[places - back] == history[-back]]
    return places


def _array(ids: frozenset[int]) -> IntArray:
    return np.fromiter(ids, dtype=np.int64, count=len(ids))
