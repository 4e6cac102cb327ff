"""Stages that change the logits of some tokens: bias, repetition, presence and frequency.

Each says which places it changes and gives the new logits there; the pipeline writes them and keeps the account.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.engine.logits.rows import FLOAT32_MAX, FLOAT32_TINY, Row

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Places:
    """Some tokens of some rows of a batch."""

    rows: Tensor  # (n,) int64
    token_ids: Tensor  # (n,) int64

    @classmethod
    def of(cls, ids_by_row: Sequence[IntArray], like: Tensor) -> "Places":
        """One array of token ids a row; ids outside the vocabulary of `like` (rows, vocab) are left out."""
        inside = [ids[ids < like.shape[1]] for ids in ids_by_row]
        rows = np.repeat(np.arange(len(inside)), [ids.size for ids in inside])
        ids = np.concatenate(inside).astype(np.int64, copy=False)
        return cls(torch.from_numpy(rows).to(like.device), torch.from_numpy(ids).to(like.device))


@dataclass(frozen=True, slots=True)
class Change:
    """New logits for some places."""

    places: Places
    values: Tensor  # (n,) float32


Penalty = Callable[[Tensor, Sequence[Row]], Change]


def bias(scores: Tensor, rows: Sequence[Row]) -> Change:
    """z[i] += b[i] for `logit_bias`."""
    ids = [np.array(list(row.settings.logit_bias), dtype=np.int64) for row in rows]
    amounts = [np.array(list(row.settings.logit_bias.values()), dtype=np.float64) for row in rows]
    return _added(scores, ids, amounts)


def repetition(scores: Tensor, rows: Sequence[Row]) -> Change:
    """z / r for z >= 0 and z * r below, for every id in scope (Keskar et al. 2019; transformers' processor)."""
    places = Places.of([np.unique(row.history(row.settings.repetition_scope)) for row in rows], scores)
    old = scores[places.rows, places.token_ids]
    # A number beyond float32 stands for its largest or smallest normal one: 0 and infinity would give NaN.
    factors = [min(max(row.settings.repetition_penalty, FLOAT32_TINY), FLOAT32_MAX) for row in rows]
    factor = torch.tensor(factors, dtype=scores.dtype, device=scores.device)[places.rows]
    return Change(places, _finite(torch.where(old < 0, old * factor, old / factor), old))


def presence_frequency(scores: Tensor, rows: Sequence[Row]) -> Change:
    """z[i] -= presence * (c > 0) + frequency * c with c = count of i in scope (the OpenAI API's two penalties)."""
    ids, amounts = [], []
    for row in rows:
        settings = row.settings
        seen, counts = np.unique(row.history(settings.presence_frequency_scope), return_counts=True)
        ids.append(seen)
        amounts.append(-settings.presence_penalty - settings.frequency_penalty * counts.astype(np.float64))
    return _added(scores, ids, amounts)


def _added(scores: Tensor, ids: Sequence[IntArray], amounts: Sequence[NDArray[np.float64]]) -> Change:
    """`amounts` added in float32 at `ids`, which have no id twice."""
    vocab_size = scores.shape[1]
    places = Places.of(ids, scores)
    inside = [amount[i < vocab_size] for i, amount in zip(ids, amounts, strict=True)]
    limited = np.clip(np.concatenate(inside), -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)
    old = scores[places.rows, places.token_ids]
    return Change(places, _finite(old + torch.from_numpy(limited).to(scores.device), old))


def _finite(new: Tensor, old: Tensor) -> Tensor:
    """`new` held inside float32, so that no sum overflows; a token that was removed before stays removed."""
    return torch.where(old == -torch.inf, old, new.clamp(-FLOAT32_MAX, FLOAT32_MAX))
