"""Two arms side by side, by their tokens alone: where they part, what explains it, and the figures of each.

Up to the first different pick both arms have the same prefix, so the checkpoint gives them the same raw distribution.
What makes them part is what their settings made of it, weighed against the noise, which arms with one seed share: an
arm picks the token with the largest processed log-probability + noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.render.text import spelled
from models.events import TokenPicked
from models.score import perplexity_of

_DISTINCT_SIZES: Final = (1, 2, 3)
_PERCENT: Final = 100.0
_LEAST_SHOWN: Final = 0.01  # per cent


@dataclass(frozen=True, slots=True)
class Rival:
    """One of the two picked tokens as one arm's ledger has it. `is_known` is False where that ledger lacks it."""

    token_id: int
    piece: str
    is_known: bool
    raw_logprob: float | None = None
    logprob: float | None = None  # processed; None when removed
    removed_by: str | None = None
    noise: float | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One arm at the divergence."""

    pick: Rival  # what this arm picked
    other: Rival  # what the other arm picked, as this arm saw it


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first position at which two arms differ. A side is None for the arm that had ended there."""

    position: int
    a: Side | None
    b: Side | None
    noise_difference: (
        float | None
    )  # G(b's pick) - G(a's pick) in nats; None where nothing was drawn or it is not shared


@dataclass(frozen=True, slots=True)
class Figures:
    """Summary figures of one arm, over all its generated tokens. None where there are no tokens to judge by."""

    num_tokens: int
    mean_logprob: float | None  # raw, nats per token
    mean_logprob_processed: float | None  # None too where the settings make a token impossible
    perplexity: float | None  # exp(-mean raw log-probability)
    perplexity_processed: float | None
    distinct: dict[int, float | None]  # n -> different n-grams of token ids / all n-grams


def first_divergence(a: Sequence[TokenPicked], b: Sequence[TokenPicked]) -> Divergence | None:
    """Where `b` first picks another token than `a`, or one goes on where the other ended; None if they are equal."""
    for left, right in zip(a, b, strict=False):
        if left.token_id != right.token_id:
            return _divergence(left, right)
    if len(a) == len(b):
        return None
    position = min(len(a), len(b))
    return Divergence(position, _alone(a, position), _alone(b, position), noise_difference=None)


def figures(tokens: Sequence[TokenPicked]) -> Figures:
    """Length, likelihood and variety of one arm."""
    num_tokens = len(tokens)
    mean = math.fsum(t.raw_logprob for t in tokens) / num_tokens if num_tokens else None
    kept = [t.logprob for t in tokens if t.logprob is not None]
    processed = math.fsum(kept) / num_tokens if num_tokens and len(kept) == num_tokens else None
    ids = [t.token_id for t in tokens]
    return Figures(
        num_tokens=num_tokens,
        mean_logprob=mean,
        mean_logprob_processed=processed,
        perplexity=perplexity_of(mean),
        perplexity_processed=perplexity_of(processed),
        distinct={n: distinct_n(ids, n) for n in _DISTINCT_SIZES},
    )


def distinct_n(ids: Sequence[int], n: int) -> float | None:
    """Share of different n-grams among all n-grams; None for a sequence shorter than `n`."""
    grams = [tuple(ids[start : start + n]) for start in range(len(ids) - n + 1)]
    return len(set(grams)) / len(grams) if grams else None


def explain(divergence: Divergence, *, a: str = "A", b: str = "B") -> str:
    """The divergence in plain words with its numbers; `a` and `b` name the arms."""
    if divergence.a is None or divergence.b is None:
        ended, other = (a, b) if divergence.a is None else (b, a)
        return f"{ended} ended after {divergence.position} tokens; {other} goes on."
    first, second = divergence.a, divergence.b
    shown = [_show_piece(first.pick), _show_piece(second.pick)]
    raw = f"raw: {shown[0]} {_percent(first.pick.raw_logprob)}, {shown[1]} {_percent(first.other.raw_logprob)}."
    parts = [
        f"Token {divergence.position}: {raw}",
        f"{a}: {_processed(first.pick)} and {_processed(first.other)}, picked {shown[0]}.",
        f"{b}: {_processed(second.other)} and {_processed(second.pick)}, picked {shown[1]}.",
        _noise_sentence(divergence, (a, b)),
    ]
    return " ".join(part for part in parts if part)


def divergence_json(divergence: Divergence) -> dict[str, Any]:
    """The divergence as plain JSON values, under the names that the commands' contract uses."""
    return {
        "position": divergence.position,
        "baseline": _side_json(divergence.a),
        "other": _side_json(divergence.b),
        "noise_difference": divergence.noise_difference,
    }


def _divergence(left: TokenPicked, right: TokenPicked) -> Divergence:
    a = Side(pick=_rival(left, left), other=_rival(left, right))
    b = Side(pick=_rival(right, right), other=_rival(right, left))
    return Divergence(left.position, a, b, noise_difference=_noise_difference(a, b))


def _rival(seen_by: TokenPicked, token: TokenPicked) -> Rival:
    """`token`'s pick as the ledger of `seen_by` has it."""
    found = next((c for c in seen_by.candidates if c.token_id == token.token_id), None)
    if found is not None:
        return Rival(
            token_id=found.token_id,
            piece=found.piece,
            is_known=True,
            raw_logprob=found.raw_logprob,
            logprob=found.logprob,
            removed_by=found.removed_by,
            noise=found.noise,
        )
    if token is seen_by:
        # A pick is known from the token itself where the run keeps no candidates.
        return Rival(token.token_id, token.piece, is_known=True, raw_logprob=token.raw_logprob, logprob=token.logprob)
    return Rival(token.token_id, token.piece, is_known=False, raw_logprob=token.raw_logprob)


def _alone(tokens: Sequence[TokenPicked], position: int) -> Side | None:
    if position >= len(tokens):
        return None
    pick = _rival(tokens[position], tokens[position])
    return Side(pick=pick, other=pick)


def _noise_difference(a: Side, b: Side) -> float | None:
    """From the arm whose ledger has both tokens; None where arms that both drew had different noise."""
    of_a = _difference(a.other.noise, a.pick.noise)
    of_b = _difference(b.pick.noise, b.other.noise)
    if of_a is not None and of_b is not None:
        return of_a if math.isclose(of_a, of_b, abs_tol=1e-5) else None
    return of_b if of_a is None else of_a


def _difference(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right


def _noise_sentence(divergence: Divergence, names: tuple[str, str]) -> str:
    """Whom the noise favours, and what that met in either arm. Empty where nobody can tell."""
    difference = divergence.noise_difference
    if difference is None or divergence.a is None or divergence.b is None:
        return ""
    arms = [(names[0], divergence.a), (names[1], divergence.b)]
    against, for_it = arms if difference > 0 else arms[::-1]
    favours = f"The shared noise favours {_show_piece(for_it[1].pick)} by {abs(difference):.1f} nats"
    return f"{favours}{_resistance(*against)}{_outcome(*for_it, against=against[1])}."


def _resistance(name: str, side: Side) -> str:
    """Why the arm did not pick the token that the noise favours."""
    if side.other.removed_by is not None:
        return f", but in {name} {_show_piece(side.other)} is removed by {side.other.removed_by}"
    if side.pick.noise is None:
        return f", but {name} draws nothing and takes the best"
    lead = _difference(side.pick.logprob, side.other.logprob)
    if lead is None:
        return ""
    return f", which {name} outweighs: there {_show_piece(side.pick)} leads by {lead:.1f} nats"


def _outcome(name: str, side: Side, *, against: Side) -> str:
    """The same lead in the arm that picked it; empty where the first arm's lead was not told."""
    if against.other.removed_by is not None or against.pick.noise is None:
        return ""
    if side.other.removed_by is not None:
        return f", in {name} {_show_piece(side.other)} is removed by {side.other.removed_by}"
    lead = _difference(side.other.logprob, side.pick.logprob)
    if lead is None or against.other.logprob is None:
        return ""
    return f", in {name} by {lead:.1f}" if lead > 0 else f", in {name} {_show_piece(side.pick)} leads anyway"


def _processed(rival: Rival) -> str:
    if rival.removed_by is not None:
        return f"removed by {rival.removed_by}"
    return _percent(rival.logprob) if rival.is_known else "below the listed candidates"


def _percent(logprob: float | None) -> str:
    share = 0.0 if logprob is None else _PERCENT * math.exp(logprob)
    return f"<{_LEAST_SHOWN} %" if 0 < share < _LEAST_SHOWN else f"{share:.3g} %"


def _show_piece(rival: Rival) -> str:
    return f'"{spelled(rival.piece)}"' if rival.piece else f"token {rival.token_id}"


def _side_json(side: Side | None) -> dict[str, Any] | None:
    return None if side is None else {"pick": _rival_json(side.pick), "other": _rival_json(side.other)}


def _rival_json(rival: Rival) -> dict[str, Any]:
    return {
        "token_id": rival.token_id,
        "piece": rival.piece,
        "raw_logprob": rival.raw_logprob,
        "logprob": rival.logprob,
        "removed_by": rival.removed_by,
        "noise": rival.noise,
    }
