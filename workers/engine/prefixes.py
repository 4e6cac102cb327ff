"""Whose keys and values another sequence can begin with. Two texts that begin with the same tokens share them, up to
there: by token ids, whatever the runs are to each other.

Caches of sequences that have ended are kept for a while, up to a number of bytes; the one that was used longest ago
goes first.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from workers.engine.cache import SequenceCache

LEAST_SHARED: Final = 8
"""Fewer common positions than this are computed again: nearly as quick as copied, and BOS alone makes one."""

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `num_positions` of a cache."""

    cache: SequenceCache
    num_positions: int


@dataclass(frozen=True, slots=True)
class _Kept:
    """The cache of a sequence that has ended, which nothing changes any more: others begin with copies of it."""

    token_ids: Ids
    cache: SequenceCache
    num_bytes: int

    def begins(self, token_ids: Ids) -> bool:
        """Whether these tokens begin with all of its own."""
        return common(self.token_ids, token_ids) == len(self.token_ids)


class Prefixes:
    """The caches of ended sequences, and the search among these and those of running ones."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._next_key = 0
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of what is kept, the room to grow included. Asked for at every step, so the sum is kept as well."""
        return self._num_bytes

    def keep(self, token_ids: Ids, cache: SequenceCache) -> None:
        """Take over the cache of a sequence that has ended; `token_ids` are those that it holds."""
        if not cache.is_shareable or cache.num_positions < LEAST_SHARED:
            return
        for key in [key for key, kept in self._kept.items() if kept.begins(token_ids)]:
            self._num_bytes -= self._kept.pop(key).num_bytes  # what begins the new one is no longer needed
        kept = _Kept(token_ids, cache, cache.num_allocated_bytes)
        self._kept[self._next_key] = kept
        self._num_bytes += kept.num_bytes
        self._next_key += 1
        self.shrink(self._max_bytes)

    def shrink(self, max_bytes: int) -> None:
        """Let go of what was used longest ago until the rest has at most `max_bytes`."""
        while self._num_bytes > max_bytes and self._kept:
            _, kept = self._kept.popitem(last=False)
            self._num_bytes -= kept.num_bytes

    def find(self, token_ids: Ids, running: Iterable[tuple[Ids, SequenceCache]]) -> Prefix | None:
        """The longest beginning of `token_ids`, the last of them left out, that a cache holds. None where none does."""
        best: Prefix | None = None
        best_key, num_best = None, LEAST_SHARED - 1
        kept = ((key, one.token_ids, one.cache) for key, one in self._kept.items())
        candidates = [*((None, *held) for held in running), *kept]
        for key, held_ids, cache in candidates:
            num = min(common(token_ids[:-1], held_ids), cache.num_positions)
            if num > num_best and cache.is_shareable:
                best, best_key, num_best = Prefix(cache, num), key, num
        if best_key is not None:
            self._kept.move_to_end(best_key)
        return best


def common(first: Ids, second: Ids) -> int:
    """How many tokens two texts begin with in common."""
    length = min(len(first), len(second))
    unlike = np.flatnonzero(first[:length] != second[:length])
    return int(unlike[0]) if len(unlike) else length
