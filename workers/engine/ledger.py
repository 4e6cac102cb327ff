"""The account of each pick: both distributions at the chosen token, its rivals, and what the stages did.

Everything is gathered on the logits' device and moved in one transfer; the entries are plain Python. Log-probabilities
are rounded to 6 decimals here, at their source, so every later reader shows the same number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.events import Others, Tax
from models.sampling import DEFAULT_ORDER
from workers.engine.logits.causes import NO_CAUSES, Causes, causes_of
from workers.engine.logits.pipeline import NOT_REMOVED, Processed, Row
from workers.engine.logits.rows import row_counts
from workers.engine.noise import gumbel_numpy
from workers.engine.sampler import Picks, seed_of

_DECIMALS: Final = 6
_NUM_FACTS: Final = 4  # of the row as a whole, see `_facts`


@dataclass(frozen=True, slots=True)
class LedgerCandidate:
    """The numbers of a `models.events.Candidate`: everything but its piece."""

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
    chosen = picks.token_ids.unsqueeze(1)  # (rows, 1)
    best = _top(processed.raw.logits, num_top)
    best_processed = best
    if processed.final is not processed.raw:
        best_processed = _top(processed.final.logits, num_top, with_impossible=False)
    shown = torch.cat([chosen, best, best_processed], dim=1)
    table = torch.stack([shown.double(), *_columns(processed, shown)], dim=-1)  # (rows, shown, 5)
    packed = torch.cat([_facts(processed, chosen), table.flatten(1)], dim=1).cpu().numpy()
    entries = []
    for index, row in enumerate(rows):
        facts, numbers = packed[index, :_NUM_FACTS], packed[index, _NUM_FACTS:].reshape(shown.shape[1], -1)
        candidates = _candidates(numbers, row, num_top=num_top, position=picks.positions[index])
        entries.append(_entry(processed, index, facts, numbers[0], candidates))
    return entries


def _top(logits: Tensor, num: int, *, with_impossible: bool = True) -> Tensor:
    """The ids (rows, num) of the `num` largest of each row; among equals at the end of the list, the lowest ids.

    Of several rows each list is in order, equals by id, so that any beginning of it is a list that would end there.
    Where a list ends among impossible tokens, any of them will do for a reader that passes them over.
    """
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


def _columns(processed: Processed, ids: Tensor) -> list[Tensor]:
    """Numbers of the tokens `ids` (rows, n), float64 each: raw and processed log-probability, stage, penalty."""
    logprobs = [processed.raw.logprobs_at(ids), processed.final.logprobs_at(ids)]
    return logprobs + [source.gather(1, ids).double() for source in (processed.removed_by, processed.penalty)]


def _facts(processed: Processed, chosen: Tensor) -> Tensor:
    """Ranks of the chosen token and entropies, raw and processed: (rows, 4) float64."""
    rank = _rank(processed.raw.logits, chosen)
    rank_processed = rank if processed.final is processed.raw else _rank(processed.final.logits, chosen)
    return torch.stack([rank, rank_processed, processed.raw.entropy, processed.final.entropy], dim=-1)


def _rank(logits: Tensor, chosen: Tensor) -> Tensor:
    return row_counts(logits > logits.gather(1, chosen)).double() + 1.0


def _candidates(numbers: NDArray[np.float64], row: Row, *, num_top: int, position: int) -> tuple[LedgerCandidate, ...]:
    """From one row of the table: the chosen token, `num_top` raw ones and `num_top` processed ones, in this order."""
    num = min(row.settings.alternatives, num_top)
    mine = np.concatenate([numbers[: 1 + num], numbers[1 + num_top : 1 + num_top + num]])
    is_listed = np.ones(len(mine), dtype=bool)
    is_listed[1 + num :] = mine[1 + num :, 2] > -np.inf  # where fewer are kept, the processed list is shorter
    mine = mine[is_listed]
    _, first = np.unique(mine[:, 0], return_index=True)
    mine = mine[first]  # by id
    mine = mine[np.argsort(-mine[:, 1], kind="stable")]
    ids = mine[:, 0].astype(np.int64)
    noise: list[float | None] = [None] * len(mine)
    if not row.settings.is_greedy:
        noise = _rounded(gumbel_numpy(seed_of(row), position, ids))
    raw, processed, penalty = (_rounded(mine[:, column]) for column in (1, 2, 4))
    stages = [None if code == NOT_REMOVED else DEFAULT_ORDER[int(code)].value for code in mine[:, 3].tolist()]
    causes = causes_of(row, ids.tolist(), stages)
    columns = zip(ids.tolist(), raw, processed, stages, penalty, noise, causes, strict=True)
    return tuple(LedgerCandidate(i, r, p, s, d or 0.0, g, c) for i, r, p, s, d, g, c in columns)


def _entry(
    processed: Processed,
    index: int,
    facts: NDArray[np.float64],
    chosen: NDArray[np.float64],
    candidates: tuple[LedgerCandidate, ...],
) -> LedgerEntry:
    rank, rank_processed, entropy, entropy_processed = (abs(f) for f in facts.tolist())
    return LedgerEntry(
        token_id=int(chosen[0]),
        raw_logprob=_round(float(chosen[1])),
        logprob=_round(float(chosen[2])) if chosen[2] > -np.inf else None,
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


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    """Like `_round`; None for minus infinity."""
    return [value if value > -np.inf else None for value in (values.round(_DECIMALS) + 0.0).tolist()]


def _rest(logprobs: Sequence[float | None]) -> float:
    """The mass that the numbers shown leave over."""
    shown = math.fsum(math.exp(value) for value in logprobs if value is not None)
    return _round(max(0.0, 1.0 - shown))
