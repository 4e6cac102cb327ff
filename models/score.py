"""What the scores of a text's tokens come to, from the tokens alone. Natural logs; perplexity = e^(-mean).

`raw_` is the checkpoint's own distribution; without it a number belongs to the processed one, as in the tokens. A text
that the settings make impossible has no processed log-probability: None, and `first_impossible` says why. Greedy
decoding picks one token at each position, so the text that it would write has probability 1 and any other 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from models.events import TokenPicked


@dataclass(frozen=True, slots=True)
class Impossible:
    """A token that the settings keep from being picked where the text has it."""

    position: int
    token_id: int
    piece: str
    stage: str | None  # the one that removed it; `temperature` where greedy decoding takes another token


@dataclass(frozen=True, slots=True)
class ScoreFigures:
    """Sums over a text. None where there is no token, and where a number would be beyond a float."""

    num_tokens: int
    raw_logprob: float
    raw_mean_logprob: float | None
    raw_perplexity: float | None
    logprob: float | None
    mean_logprob: float | None
    perplexity: float | None
    first_impossible: Impossible | None


def score_figures(tokens: Sequence[TokenPicked], *, is_greedy: bool) -> ScoreFigures:
    """The figures of a scored text. `is_greedy`: the settings' temperature is 0."""
    num_tokens = len(tokens)
    raw = math.fsum(token.raw_logprob for token in tokens)
    kept = [token.logprob for token in tokens if token.logprob is not None]
    processed = None
    if len(kept) == num_tokens:
        processed = 0.0 if is_greedy else math.fsum(kept)
    return ScoreFigures(
        num_tokens=num_tokens,
        raw_logprob=raw,
        raw_mean_logprob=_mean(raw, num_tokens),
        raw_perplexity=perplexity_of(_mean(raw, num_tokens)),
        logprob=processed,
        mean_logprob=_mean(processed, num_tokens),
        perplexity=perplexity_of(_mean(processed, num_tokens)),
        first_impossible=_first_impossible(tokens),
    )


def _mean(total: float | None, num_tokens: int) -> float | None:
    return None if total is None or not num_tokens else total / num_tokens


def perplexity_of(mean: float | None) -> float | None:
    """e^(-mean); None for no mean, and where the number would be beyond a float."""
    try:
        return None if mean is None else math.exp(-mean)
    except OverflowError:
        return None


def _first_impossible(tokens: Sequence[TokenPicked]) -> Impossible | None:
    token = next((token for token in tokens if token.logprob is None), None)
    if token is None:
        return None
    stage = next((c.removed_by for c in token.candidates if c.token_id == token.token_id), None)
    return Impossible(token.position, token.token_id, token.piece, stage)
