"""Rows and logits for the tests of the numbers."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.sampling import Settings
from workers.engine.ledger import LedgerEntry, write
from workers.engine.logits.pipeline import Processed, Row, process
from workers.engine.sampler import pick


def row(
    settings: dict[str, Any] | None = None,
    *,
    prompt: list[int] | None = None,
    output: list[int] | None = None,
    end: frozenset[int] = frozenset(),
) -> Row:
    """A row with seed 1 unless told otherwise; `banned` in the settings holds ids."""
    values = Settings.parse({"seed": 1} | (settings or {}))
    return Row(
        settings=values,
        prompt_ids=prompt or [],
        output_ids=output or [],
        banned_ids=frozenset(i for i in values.banned if isinstance(i, int)),
        end_token_ids=end,
    )


def logits_of(*probabilities: float) -> Tensor:
    """(1, vocab) float32 logits of one distribution."""
    return torch.tensor([[math.log(p) if p else -math.inf for p in probabilities]], dtype=torch.float32)


def probabilities(processed: Processed, index: int = 0) -> list[float]:
    return processed.logprobs[index].exp().tolist()


def kept_ids(processed: Processed, index: int = 0) -> list[int]:
    return np.flatnonzero(processed.logprobs[index].numpy() > -np.inf).tolist()


def entries(logits: Tensor, rows: list[Row], positions: list[int] | None = None) -> list[LedgerEntry]:
    """The whole way of a step: process, pick, write."""
    processed = process(logits, rows)
    return write(processed, pick(processed, rows, positions or [0] * len(rows)), rows)
