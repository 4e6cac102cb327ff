"""Picking: the kept token with the largest processed log-probability + Gumbel noise, or the largest logit at T = 0.

The pick of a row depends on its processed distribution, its seed and its position, and on nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.engine.logits.pipeline import Processed, Row
from workers.engine.noise import gumbel_numpy, gumbel_rows, uniform_bits_numpy

# Up to this many kept tokens it is quicker to compute the noise of each than to draw a number for the whole vocabulary.
_FEW: Final = 2048
# The quick comparison is right to about 1e-6; what comes this close to the best is computed exactly.
_CLOSE: Final = 1 + 1e-4


@dataclass(frozen=True, slots=True)
class Picks:
    """One picked token a row, and the output position it was picked for."""

    token_ids: Tensor  # (rows,) int64, on the logits' device
    positions: tuple[int, ...]


def pick(processed: Processed, rows: Sequence[Row], positions: Sequence[int]) -> Picks:
    """Pick a token for each row. `positions`: 0 for the first generated token. Every sampled row's seed is set."""
    if processed.final.logits.device.type == "cpu":
        ids = [_pick_one(processed, row, index, positions[index]) for index, row in enumerate(rows)]
        return Picks(torch.from_numpy(np.array(ids, dtype=np.int64)), tuple(positions))
    return Picks(pick_rows(processed, rows, positions), tuple(positions))


def pick_rows(processed: Processed, rows: Sequence[Row], positions: Sequence[int]) -> Tensor:
    """The rule of this module, written out over whole rows: (rows,) int64. What `pick` does on an accelerator."""
    seeds = [seed_of(row) for row in rows]
    logits = processed.final.logits
    noise = gumbel_rows(seeds, positions, logits.shape[1], device=logits.device)
    is_greedy = torch.tensor([row.settings.is_greedy for row in rows], device=noise.device)
    scores = torch.where(is_greedy.unsqueeze(1), logits.double(), processed.logprobs + noise)
    return scores.argmax(dim=-1)  # the first of equals, so the lowest id


def seed_of(row: Row) -> int:
    """The seed of a row; 0 for a greedy one without, which draws nothing."""
    return row.settings.seed or 0


def _pick_one(processed: Processed, row: Row, index: int, position: int) -> int:
    if row.settings.is_greedy:
        return int(processed.final.logits[index].argmax())
    seed = seed_of(row)
    logits: NDArray[np.float32] = processed.final.logits[index].numpy()
    ids = np.flatnonzero(logits > -np.inf)
    if ids.size > _FEW:
        ids = _contenders(processed.final.weights[index].numpy(), uniform_bits_numpy(seed, position, logits.size))
    if ids.size == 1:
        return int(ids[0])
    final = processed.final
    logprobs = (logits[ids].astype(np.float64) - float(final.best[index])) - float(final.log_total[index])
    return int(ids[(logprobs + gumbel_numpy(seed, position, ids)).argmax()])


def _contenders(weights: NDArray[np.float32], bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """The few ids that can have the largest logprob - log(-log u), which is the smallest (-log u) / weight.

    A removed token's weight is far too small to win against the best token's, which is 1.
    """
    race = np.log((bits + 0.5) * 2.0**-32)  # negative: the largest is the best
    race /= weights
    return np.flatnonzero(race >= race.max() * _CLOSE)
