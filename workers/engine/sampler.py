"""Picking: the kept token with the largest processed log-probability + Gumbel noise, or the largest logit at T = 0.

The pick of a row depends on its processed distribution, its seed and its position, and on nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from workers.engine.kernels import compiled, picking
from workers.engine.kernels.picking import Draws
from workers.engine.logits.pipeline import Processed, Row
from workers.engine.noise import gumbel_rows


@dataclass(frozen=True, slots=True)
class Picks:
    """One picked token a row, and the output position it was picked for."""

    token_ids: Tensor  # (rows,) int64, on the logits' device
    positions: tuple[int, ...]


def pick(processed: Processed, rows: Sequence[Row], positions: Sequence[int]) -> Picks:
    """Pick a token for each row. `positions`: 0 for the first generated token. Every sampled row's seed is set."""
    if compiled.is_for(processed.final.logits):
        final = processed.final
        numbers = (final.logits.numpy(), final.weights.numpy(), final.best.numpy(), final.log_total.numpy())
        return Picks(torch.from_numpy(picking.pick(*numbers, draws_of(rows, positions))), tuple(positions))
    return Picks(pick_rows(processed, rows, positions), tuple(positions))


def pick_rows(processed: Processed, rows: Sequence[Row], positions: Sequence[int]) -> Tensor:
    """The rule of this module, written out over whole rows: (rows,) int64. What `pick` does on an accelerator."""
    seeds = [seed_of(row) for row in rows]
    logits = processed.final.logits
    noise = gumbel_rows(seeds, positions, logits.shape[1], device=logits.device)
    is_greedy = torch.tensor([row.settings.is_greedy for row in rows], device=noise.device)
    scores = torch.where(is_greedy.unsqueeze(1), logits.double(), processed.logprobs + noise)
    return scores.argmax(dim=-1)  # the first of equals, so the lowest id


def draws_of(rows: Sequence[Row], positions: Sequence[int]) -> Draws:
    """What the rows draw at these positions."""
    return Draws(
        is_greedy=np.array([row.settings.is_greedy for row in rows]),
        seeds=np.array([seed_of(row) for row in rows], np.uint64),
        positions=np.array(positions, np.uint64),
    )


def seed_of(row: Row) -> int:
    """The seed of a row; 0 for a greedy one without, which draws nothing."""
    return row.settings.seed or 0
