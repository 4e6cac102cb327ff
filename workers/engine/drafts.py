"""A ledger's entry as the token's event, but for its text, which the transcript knows. Plain Python."""

from collections.abc import Sequence

from models.events import Candidate, TokenPicked
from workers.engine.ledger import LedgerCandidate, LedgerEntry
from workers.engine.vocabulary import Vocabulary


def draft(entry: LedgerEntry, vocabulary: Vocabulary, *, position: int, elapsed_ms: float) -> TokenPicked:
    """The event of the token at output `position`, `elapsed_ms` after the attempt began its prefill."""
    return TokenPicked(
        position=position,
        token_id=entry.token_id,
        piece="",
        token_bytes=vocabulary.token_bytes(entry.token_id),
        text="",
        visible=False,
        withheld=False,
        raw_logprob=entry.raw_logprob,
        logprob=entry.logprob,
        rank=entry.rank,
        rank_processed=entry.rank_processed,
        entropy=entry.entropy,
        entropy_processed=entry.entropy_processed,
        kept=entry.kept,
        removed_mass=entry.removed_mass,
        candidates=_candidates(entry.candidates, vocabulary),
        others=entry.others,
        tax=entry.tax,
        elapsed_ms=elapsed_ms,
    )


def _candidates(candidates: Sequence[LedgerCandidate], vocabulary: Vocabulary) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            token_id=c.token_id,
            piece=vocabulary.spelling(c.token_id),
            raw_logprob=c.raw_logprob,
            logprob=c.logprob,
            removed_by=c.removed_by,
            penalty=c.penalty,
            noise=c.noise,
            num_causes=c.causes.num,
            causes=c.causes.latest,
        )
        for c in candidates
    )
