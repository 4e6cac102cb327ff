"""What one sequence computes in a step."""

from dataclasses import dataclass

from workers.engine.cache import SequenceCache
from workers.engine.ragged import Pass
from workers.engine.scheduler import SCORE_POSITIONS, Chunk
from workers.engine.search import BeamSearch
from workers.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Turn:
    """One sequence and its pass."""

    sequence: Sequence
    work: Pass
    chunk: Chunk | None = None  # of its prefill; None for one that goes on


def prefilling(sequence: Sequence, cache: SequenceCache, chunk: Chunk) -> Turn:
    """The next positions of what a sequence begins with."""
    return Turn(sequence, Pass(cache, [sequence.cached_ids[chunk.start : chunk.stop]]), chunk)


def decoding(sequence: Sequence, cache: SequenceCache, *, by_one: bool) -> Turn:
    """One more position: the last token; or the next given tokens, all but the last, after which nothing is asked.

    `by_one`: these come one by one too, for a checkpoint that cannot take several."""
    if sequence.given_ids is None:
        return Turn(sequence, Pass(cache, [(sequence.output_ids[-1],)]))
    start = sequence.position - 1
    token_ids = sequence.given_ids[start:-1][: 1 if by_one else SCORE_POSITIONS].tolist()
    return Turn(sequence, Pass(cache, [token_ids], num_kept=len(token_ids)))


def searching(sequence: Sequence, cache: SequenceCache, search: BeamSearch) -> Turn:
    """One more position of every beam."""
    cache.select_rows(search.parents)
    return Turn(sequence, Pass(cache, [(token_id,) for token_id in search.last_ids]))
