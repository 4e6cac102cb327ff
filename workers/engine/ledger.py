"""The account of each pick: both distributions at the chosen token, its rivals, and what the stages did.

Everything is gathered on the logits' device; the entries are plain Python. Log-probabilities
are rounded to 6 decimals here, at their source, so every later reader shows the same number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.events import Others, Tax
from models.sampling import DEFAULT_ORDER
from workers.engine.kernels import compiled, leaders, listing
from workers.engine.logits.causes import NO_CAUSES, Causes, causes_of
from workers.engine.logits.distribution import Distribution
from workers.engine.logits.pipeline import NOT_REMOVED, Processed, Row
from workers.engine.logits.rows import row_counts
from workers.engine.sampler import Picks, draws_of

_DECIMALS: Final = 6
_STAGES: Final = {NOT_REMOVED: None, **{code: stage.value for code, stage in enumerate(DEFAULT_ORDER)}}


class LedgerCandidate(NamedTuple):
    """The numbers of a `models.events.Candidate`: everything but its piece. Many are made in a step; this is quick."""

    token_id: int
    raw_logprob: float | None
    logprob: float | None
    removed_by: str | None
    penalty: float
    noise: float | None
    causes: Causes = NO_CAUSES


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The numbers of a `models.events.TokenPicked`."""

    token_id: int
    raw_logprob: float
    logprob: float | None  # None for a given token that a stage removed
    rank: int
    rank_processed: int
    entropy: float
    entropy_processed: float
    kept: dict[str, int]
    removed_mass: dict[str, float]
    candidates: tuple[LedgerCandidate, ...]  # top raw, the chosen one, top processed: by raw log-probability, then id
    others: Others
    tax: Tax | None


def write(processed: Processed, picks: Picks, rows: Sequence[Row]) -> list[LedgerEntry]:
    """One entry a row. Equal logits are ranked by id, the lowest first, where a list has to end among them."""
    num_top = min(max(row.settings.alternatives for row in rows), processed.raw.logits.shape[1])
    best = _top(processed.raw.logits, num_top)
    best_processed = best
    if processed.final is not processed.raw:
        best_processed = _top(processed.final.logits, num_top, with_impossible=False)
    shown = torch.cat([picks.token_ids.unsqueeze(1), best, best_processed], dim=1)
    facts, numbers = _measured(processed, shown)
    draws = draws_of(rows, picks.positions)
    alternatives = np.array([row.settings.alternatives for row in rows])
    arranged, nums = listing.arrange(numbers, alternatives, draws.seeds, draws.positions)
    arranged[..., 1:] = arranged[..., 1:].round(_DECIMALS) + 0.0  # like `_round`
    chosen = numbers[:, 0].tolist()
    listed = [mine[:num] for mine, num in zip(arranged.tolist(), nums.tolist(), strict=True)]
    return [
        _entry(processed, index, facts[index], chosen[index], _candidates(mine, row))
        for index, (row, mine) in enumerate(zip(rows, listed, strict=True))
    ]


def _top(logits: Tensor, num: int, *, with_impossible: bool = True) -> Tensor:
    """The ids (rows, num) of the `num` largest of each row; among equals at the end of the list, the lowest ids.

    Of several rows each list is in order, equals by id, so that any beginning of it is a list that would end there.
    Where a list ends among impossible tokens, any of them will do for a reader that passes them over.
    """
    if compiled.is_for(logits):
        return torch.from_numpy(leaders.leaders(logits.numpy(), num))
    size = logits.shape[1]
    best = torch.topk(logits, min(num + 1, size), dim=-1)
    ids = best.indices[:, :num]
    if num not in (0, size):
        last, next_one = best.values[:, num - 1], best.values[:, num]
        if bool(((last == next_one) & (with_impossible | (last > -torch.inf))).any()):
            ids = torch.topk(_by_value_then_id(logits), num, dim=-1).indices
    if logits.shape[0] == 1:
        return ids
    ids = ids.sort(dim=-1).values
    order = logits.gather(1, ids).sort(dim=-1, descending=True, stable=True).indices
    return ids.gather(1, order)


def _by_value_then_id(logits: Tensor) -> Tensor:
    """An int64 for each logit that orders like (value, -id): the float's bits, their magnitude reversed below 0."""
    bits = (logits + 0.0).view(torch.int32)  # adding 0 gives both zeros the same bits
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    return (ordered << 32) - torch.arange(logits.shape[1], device=logits.device)


def _measured(processed: Processed, shown: Tensor) -> tuple[list[list[float]], NDArray[np.float64]]:
    """In one transfer the facts of each row (see `_facts`), and of the tokens `shown` (rows, n), of which the first is
    the chosen one: id, raw and processed log-probability, stage, penalty; (rows, n, 5)."""
    facts = _facts(processed, shown[:, :1])
    raw, final = processed.raw, processed.final
    if compiled.is_for(shown):
        columns = (_host(raw), _host(final), processed.removed_by.numpy(), processed.penalty.numpy())
        return facts.tolist(), listing.gather(shown.numpy(), *columns)
    logprobs = [raw.logprobs_at(shown), final.logprobs_at(shown)]
    others = [source.gather(1, shown).double() for source in (processed.removed_by, processed.penalty)]
    numbers = torch.stack([shown.double(), *logprobs, *others], dim=-1)
    packed: NDArray[np.float64] = torch.cat([facts, numbers.flatten(1)], dim=1).cpu().numpy()
    num_facts = facts.shape[1]
    return packed[:, :num_facts].tolist(), packed[:, num_facts:].reshape(numbers.shape)


def _host(distribution: Distribution) -> listing.Logprobs:
    d = distribution
    return listing.Logprobs(d.logits.numpy(), d.best.numpy(), d.log_total.numpy())


def _facts(processed: Processed, chosen: Tensor) -> Tensor:
    """Ranks of the token `chosen` (rows, 1) and entropies, raw and processed: (rows, 4) float64."""
    rank = _rank(processed.raw.logits, chosen)
    rank_processed = rank if processed.final is processed.raw else _rank(processed.final.logits, chosen)
    return torch.stack([rank, rank_processed, processed.raw.entropy, processed.final.entropy], dim=-1)


def _rank(logits: Tensor, chosen: Tensor) -> Tensor:
    if compiled.is_for(logits):
        return torch.from_numpy(leaders.ranks(logits.numpy(), chosen.squeeze(1).numpy()))
    return row_counts(logits > logits.gather(1, chosen)).double() + 1.0


def _candidates(listed: list[list[float]], row: Row) -> tuple[LedgerCandidate, ...]:
    """Of one row, from its part of a listing, rounded."""
    ids = [int(numbers[listing.ID]) for numbers in listed]
    stages = [_STAGES[int(numbers[listing.STAGE])] for numbers in listed]
    is_greedy = row.settings.is_greedy
    return tuple(
        LedgerCandidate(
            token_id,
            raw if raw > -math.inf else None,
            logprob if logprob > -math.inf else None,
            stage,
            penalty,
            None if is_greedy else noise,
            causes,
        )
        for token_id, stage, causes, (_, raw, logprob, _, penalty, noise) in zip(
            ids, stages, causes_of(row, ids, stages), listed, strict=True
        )
    )


def _entry(
    processed: Processed,
    index: int,
    facts: Sequence[float],
    chosen: Sequence[float],
    candidates: tuple[LedgerCandidate, ...],
) -> LedgerEntry:
    rank, rank_processed, entropy, entropy_processed = (abs(f) for f in facts)
    return LedgerEntry(
        token_id=int(chosen[0]),
        raw_logprob=_round(chosen[1]),
        logprob=_round(chosen[2]) if chosen[2] > -math.inf else None,
        rank=int(rank),
        rank_processed=int(rank_processed),
        entropy=_round(entropy),
        entropy_processed=_round(entropy_processed),
        kept=processed.kept[index],
        removed_mass={stage: _round(mass) for stage, mass in processed.removed_mass[index].items()},
        candidates=candidates,
        others=Others(raw=_rest([c.raw_logprob for c in candidates]), processed=_rest([c.logprob for c in candidates])),
        tax=processed.tax[index],
    )


def _round(value: float) -> float:
    """To 6 decimals; never -0.0, whose sign a database may lose."""
    return round(value, _DECIMALS) + 0.0


def _rest(logprobs: Sequence[float | None]) -> float:
    """The mass that the numbers shown leave over."""
    shown = math.fsum(math.exp(value) for value in logprobs if value is not None)
    return _round(max(0.0, 1.0 - shown))
