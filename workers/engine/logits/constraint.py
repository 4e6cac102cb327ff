"""The stage that removes what a constraint forbids, and what it costs: its tax."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from models.events import Tax
from workers.engine.logits.distribution import Distribution
from workers.engine.logits.rows import Row

RULED_OUT: Final = "the checkpoint gives no probability to any token that the constraint allows"

_DECIMALS: Final = 6


def allowed(rows: Sequence[Row], like: Tensor) -> Tensor:
    """What each row's constraint allows: (rows, vocab) of bool. Raises ValueError for a row that does not say."""
    masks = [row.allowed for row in rows]
    if any(mask is None for mask in masks):
        raise ValueError("a row has a constraint, but not what it allows at this position (Row.allowed)")
    return torch.from_numpy(np.stack([mask for mask in masks if mask is not None])).to(like.device)


def ruled_out(logits: Tensor, mask: Tensor) -> Tensor:
    """The rows of `logits` in which every token that `mask` (rows, vocab) allows is impossible: (rows,) of bool."""
    return ~((logits > -torch.inf) & mask).any(dim=-1)


def taxes(raw: Distribution, mask: Tensor) -> list[Tax | None]:
    """-log2 of the raw probability that `mask` (rows, vocab) allows, and the raw favourite where it does not.

    From the logits themselves: what is allowed may be far too improbable for a sum of probabilities.
    """
    wide = raw.logits.double()
    nats = wide.logsumexp(dim=-1) - wide.masked_fill(~mask, -torch.inf).logsumexp(dim=-1)
    favourite = raw.logits.argmax(dim=-1, keepdim=True)  # the first of equals
    is_allowed = mask.gather(1, favourite).squeeze(1)
    table = torch.stack([nats / math.log(2), favourite.squeeze(1).double(), is_allowed.double()]).tolist()
    return [
        Tax(bits=round(max(0.0, bits), _DECIMALS) + 0.0, displaced=None if is_kept else int(token_id))
        for bits, token_id, is_kept in zip(*table, strict=True)
    ]
