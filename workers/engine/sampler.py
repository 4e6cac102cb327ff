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
# The library's logarithm is right to about 1e-15; what comes this close to the best is computed exactly.
_CLOSE: Final = 1 + 1e-6


@dataclass(frozen=True, slots=True)
class Picks:
    """One picked token a row, and the output position it was picked for."""

    token_ids: Tensor  # (rows,) int64, on the logits' device
    positions: tuple[int, ...]


def pick(processed: Processed, rows: Sequence[Row], positions: Sequence[int]) -> Picks:
    """Pick a token for each row. `positions`: 0 for the first generated token. Every sampled row's seed is set."""
    if processed.logits.device.type == "cpu":
        ids = [_pick_one(processed, row, index, positions[index]) for index, row in enumerate(rows)]
        return Picks(torch.from_numpy(np.array(ids, dtype=np.int64)), tuple(positions))
    return Picks(pick_rows(processed, rows, positions), tuple(positions))


def pick_rows(processed: Processed, rows: Sequence[Row], positions: Sequence[int]) -> Tensor:
    """The rule of this module, written out over whole rows: (rows,) int64. What `pick` does on an accelerator."""
    seeds = [seed_of(row) for row in rows]
    noise = gumbel_rows(seeds, positions, processed.logits.shape[1], device=processed.logits.device)
    is_greedy = torch.tensor([row.settings.is_greedy for row in rows], device=noise.device)
    scores = torch.where(is_greedy.unsqueeze(1), processed.logits.double(), processed.logprobs + noise)
    return scores.argmax(dim=-1)  # the first of equals, so the lowest id


def seed_of(row: Row) -> int:
    """The seed of a row; 0 for a greedy one without, which draws nothing."""
    return row.settings.seed or 0


def _pick_one(processed: Processed, row: Row, index: int, position: int) -> int:
    if row.settings.is_greedy:
        return int(processed.logits[index].argmax())
    logprobs: NDArray[np.float64] = processed.logprobs[index].numpy()
    ids = np.flatnonzero(logprobs > -np.inf)
    if ids.size > _FEW:
        ids = _contenders(logprobs, uniform_bits_numpy(seed_of(row), position, logprobs.size))
    if ids.size == 1:
        return int(ids[0])
    scores = logprobs[ids] + gumbel_numpy(seed_of(row), position, ids)
    return int(ids[scores.argmax()])


def _contenders(logprobs: NDArray[np.float64], bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """The few ids that can have the largest logprob - log(-log u), which is the smallest (-log u) / probability."""
    race = np.log((bits + 0.5) * 2.0**-32)  # negative: the largest is the best
    with np.errstate(divide="ignore"):  # a probability too small for float64 never wins
        race /= np.exp(logprobs)
    return np.flatnonzero(race >= race.max() * _CLOSE)
