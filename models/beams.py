"""How a beam search came to its winner: the event that tells its lineage."""

from dataclasses import dataclass

import msgspec


class TracedBeam(msgspec.Struct, frozen=True, array_like=True):
    """A beam after one step. An array in the JSON, as there are thousands: [parent, token_id, total, score]."""

    parent: int  # which beam of the step before it continues, 0 for the best
    token_id: int
    total: float  # the sum of its tokens' log-probabilities after the stages
    score: float  # total / generated length ** length_penalty


class PrunedBeam(msgspec.Struct, frozen=True, array_like=True):
    """A continuation that a step dropped: [parent, token_id, margin]."""

    parent: int
    token_id: int
    margin: float  # how much more it needed: of its total, or of its score if it had ended among the best


class BeamStep(msgspec.Struct, frozen=True, array_like=True):
    """One step of a beam search, each list best first: [beams, finished, pruned]."""

    beams: tuple[TracedBeam, ...]  # those that run on
    finished: tuple[TracedBeam, ...]  # those that have ended here, and had a place among the best then
    pruned: tuple[PrunedBeam, ...]  # those that came closest, at most num_beams


@dataclass(frozen=True, slots=True)
class BeamsTraced:
    """The lineage of a beam search. It comes once, after the winner's tokens."""

    num_beams: int
    sequence_score: float  # of the winner
    beam_indices: tuple[int, ...]  # the parent of each of the winner's tokens, as transformers counts them
    num_steps: int
    steps: tuple[BeamStep, ...]  # the first 2,000 at most
