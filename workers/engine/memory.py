"""Who holds which keys and values: a cache for every sequence that has a row, and what ended ones have left behind.

A sequence begins with a copy of what another has computed already of the same tokens; the rest it computes itself.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from workers.engine.cache import SequenceCache
from workers.engine.prefixes import LEAST_SHARED, Prefixes, common
from workers.engine.sequence import Sequence

KEPT_BYTES = 256 * 2**20


class Memory:
    """Knows sequences by their ids."""

    def __init__(self, new_cache: Callable[[], SequenceCache], *, max_kept_bytes: int = KEPT_BYTES) -> None:
        """`max_kept_bytes`: for the caches of sequences that have ended."""
        self._new_cache = new_cache
        self._prefixes = Prefixes(max_kept_bytes)
        self._held: dict[str, tuple[Sequence, SequenceCache]] = {}

    def __contains__(self, sequence_id: str) -> bool:
        return sequence_id in self._held

    def cache(self, sequence_id: str) -> SequenceCache:
        return self._held[sequence_id][1]

    def begin(self, sequence: Sequence) -> int | None:
        """Give a sequence that gets a row its cache; how many of its first positions this holds already.

        None, and no cache, where a prefill that is under way will soon have more of them.
        """
        found = self._prefixes.find(_ids(sequence.cached_ids), self._running())
        num_shared = 0 if found is None else found.num_positions
        if any(self._is_coming(sequence, num_shared, *held) for held in self._held.values()):
            return None
        cache = self._new_cache() if found is None else found.cache.beginning(num_shared)
        self._held[sequence.sequence_id] = (sequence, cache)
        return num_shared

    def release(self, sequence_id: str) -> SequenceCache | None:
        """Take the cache from a sequence that has ended, as it is now; others may still begin with it."""
        held = self._held.pop(sequence_id, None)
        if held is None:
            return None
        self._prefixes.keep(_held_ids(*held), held[1])
        return held[1]

    def _running(self) -> Iterator[tuple[NDArray[np.int64], SequenceCache]]:
        return ((_held_ids(*held), held[1]) for held in self._held.values())

    def _is_coming(self, sequence: Sequence, num_shared: int, other: Sequence, cache: SequenceCache) -> bool:
        """Whether `other` is computing more of the first positions of `sequence` than the `num_shared` there are. The
        last position a sequence computes itself, for the logits after it."""
        is_prefilled = cache.num_positions >= len(other.cached_ids)
        if is_prefilled or not cache.is_shareable:
            return False
        return common(_ids(sequence.cached_ids[:-1]), _ids(other.cached_ids)) >= num_shared + LEAST_SHARED


def _held_ids(sequence: Sequence, cache: SequenceCache) -> NDArray[np.int64]:
    """The tokens whose positions `cache` holds."""
    output = sequence.output_ids if sequence.given_ids is None else sequence.given_ids
    return np.concatenate([sequence.prompt_ids, np.asarray(output, dtype=np.int64)])[: cache.num_positions]


def _ids(token_ids: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(token_ids, dtype=np.int64)
