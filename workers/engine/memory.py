"""Who holds which keys and values: a cache for every sequence that has a row, and what ended ones have left behind.

A sequence begins with a copy of what another has computed already of the same tokens; the rest it computes itself.

All caches together keep to a budget. A cache begins with room for what is prefilled into it, which is sure to come, and
grows in steps; what a sequence might need later is not reserved: where
the budget is used up, what ended sequences left behind goes first, then the cache of the sequence that began last. That
one waits for room and computes its positions anew; its tokens are what they were.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from workers.engine.cache import Room, SequenceCache
from workers.engine.prefixes import LEAST_SHARED, Ids, Prefixes, common
from workers.engine.sequence import Sequence

KEPT_BYTES = 256 * 2**20
SPARE_POSITIONS, NUM_SPARES = 8, 8  # arms that began together grow one after the other


class Memory:
    """Knows sequences by their ids."""

    def __init__(
        self,
        new_cache: Callable[[], SequenceCache],
        bytes_for: Callable[[int], int],
        *,
        max_bytes: int | None = None,
        max_kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """`bytes_for`: of one sequence with so many positions. `max_bytes`: the budget of all caches; None: no bound.
        `max_kept_bytes`: of this, for sequences that have ended."""
        self._new_cache = new_cache
        self._bytes_for = bytes_for
        self._max_bytes = max_bytes
        self._prefixes = Prefixes(max_kept_bytes if max_bytes is None else min(max_kept_bytes, max_bytes))
        self._num_begun = 0
        self._held: dict[str, tuple[Sequence, SequenceCache]] = {}  # in the order in which they began

    def __contains__(self, sequence_id: str) -> bool:
        return sequence_id in self._held

    def cache(self, sequence_id: str) -> SequenceCache:
        return self._held[sequence_id][1]

    def begin(self, sequence: Sequence) -> int | None:
        """Give a sequence that gets a row its cache; how many of its first positions this holds already.

        None, and no cache, where a prefill that is under way will soon have more of them, and where there is no room.
        """
        ids = _begun_with(sequence)
        room = Room(len(ids), SPARE_POSITIONS * (self._num_begun % NUM_SPARES))
        if self._held and self._lacks(self._bytes_for(room.of(0))):
            return None
        found = self._prefixes.find(ids, self._running())
        num_shared = 0 if found is None else found.num_positions
        if any(_is_coming(ids, num_shared, *held) for held in self._held.values()):
            return None
        try:
            cache = self._new_cache() if found is None else found.cache.beginning(num_shared, room)
        except (RuntimeError, MemoryError):  # no memory for a copy: then it computes everything itself, chunk by chunk
            self._prefixes.shrink(0)
            cache, num_shared, found = self._new_cache(), 0, None
        if found is None:
            cache.make_room(room)
        self._num_begun += 1
        self._held[sequence.sequence_id] = (sequence, cache)
        return num_shared

    def make_room(self, coming: Mapping[str, int]) -> list[str]:
        """Let go of caches until there is room for the new positions that are `coming`, by sequence. The sequences that
        have lost theirs; one alone keeps it, and so do beam searches."""
        losers: list[str] = []
        while self._lacks(0, coming):
            if self._prefixes.num_bytes:
                self._prefixes.shrink(0)
                continue
            loser = next((i for i, held in reversed(self._held.items()) if not held[0].is_searched), None)
            if loser is None or len(self._held) == 1:
                break
            losers.append(loser)
            del self._held[loser]
        return losers

    def drop(self, sequence_id: str) -> None:
        """Let go of a running sequence's cache."""
        del self._held[sequence_id]

    def _lacks(self, num_bytes: int, coming: Mapping[str, int] | None = None) -> bool:
        """Whether the budget has no room for so many bytes and for the positions that are `coming`. Not for what ended
        sequences left behind, unless positions are coming: those go where there is no room for both."""
        if self._max_bytes is None:
            return False
        num_held = sum(
            cache.num_rows * self._bytes_for(cache.room.of(cache.num_positions + (coming or {}).get(sequence_id, 0)))
            for sequence_id, (_, cache) in self._held.items()
        )
        kept = 0 if coming is None else self._prefixes.num_bytes
        return num_held + kept + num_bytes > self._max_bytes

    def release(self, sequence_id: str, *, may_share: bool) -> SequenceCache | None:
        """Take the cache from a sequence that has ended, as it is now. `may_share`: others may still begin with it."""
        held = self._held.pop(sequence_id, None)
        if held is None:
            return None
        if may_share:
            self._prefixes.keep(_held_ids(*held), held[1])
        return held[1]

    def _running(self) -> Iterator[tuple[Ids, SequenceCache]]:
        return ((_held_ids(*held), held[1]) for held in self._held.values())


def _is_coming(ids: Ids, num_shared: int, other: Sequence, cache: SequenceCache) -> bool:
    """Whether `other` is computing more of the first positions of a text than the `num_shared` there are. The last
    position a sequence computes itself, for the logits after it."""
    others = _begun_with(other)
    is_prefilled = cache.num_positions >= len(others)
    if is_prefilled or not cache.is_shareable:
        return False
    return common(ids[:-1], others) >= num_shared + LEAST_SHARED


def _held_ids(sequence: Sequence, cache: SequenceCache) -> Ids:
    """The tokens whose positions `cache` holds."""
    output = sequence.output_ids if sequence.given_ids is None else sequence.given_ids
    return np.concatenate([sequence.prompt_ids, np.asarray(output, dtype=np.int64)])[: cache.num_positions]


def _begun_with(sequence: Sequence) -> Ids:
    """`sequence.cached_ids`: what a prefill computes."""
    if sequence.is_searched or not sequence.output_ids:
        return sequence.prompt_ids
    return np.concatenate([sequence.prompt_ids, np.asarray(sequence.output_ids, dtype=np.int64)])
