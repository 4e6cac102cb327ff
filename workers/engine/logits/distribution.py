"""A probability distribution over the vocabulary, as its logits and the few numbers that normalise them.

The passes over the vocabulary are in float32 and what they add up is added in float64: sums, log-probabilities and
entropies are right to about 1e-7.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from workers.engine.kernels import compiled
from workers.engine.kernels.weighing import weigh
from workers.engine.logits.rows import LEAST_EXPONENT, masked_sums, row_sums


@dataclass(frozen=True, slots=True)
class Distribution:
    """softmax of each row of `logits`; minus infinity stands for probability 0."""

    logits: Tensor  # (rows, vocab) float32
    weights: Tensor  # (rows, vocab) float32: e^(z - largest z); a number too small to matter where that is 0
    total: Tensor  # (rows,) float64: sum of the weights
    best: Tensor  # (rows,) float64: largest z
    log_total: Tensor  # (rows,) float64
    entropy: Tensor  # (rows,) float64, nats

    @classmethod
    def of(cls, logits: Tensor) -> Self:
        """`logits`: (rows, vocab) float32, each row with a finite largest number."""
        if compiled.is_for(logits):
            w = weigh(logits.numpy())
            numbers = (w.weights, w.total, w.best, w.log_total, w.entropy)
            return cls(logits, *(torch.from_numpy(number) for number in numbers))
        best = logits.amax(dim=-1, keepdim=True)
        below = (logits - best).clamp_min_(LEAST_EXPONENT)
        weights = below.exp()
        total = row_sums(weights.double())
        log_total = total.log()
        # H = -sum p log p with log p = below - log_total
        entropy = log_total - row_sums(below.mul_(weights).double()) / total
        return cls(logits, weights, total, best.squeeze(1).double(), log_total, entropy)

    @property
    def is_healthy(self) -> bool:
        """Whether every row came from numbers that a pick can be made of: a finite best one and no NaN."""
        return all(math.isfinite(number) for number in torch.cat([self.best, self.entropy]).tolist())

    @property
    def logprobs(self) -> Tensor:
        """(rows, vocab) float64, computed at each call."""
        return self._normalized(self.logits)

    def logprobs_at(self, token_ids: Tensor) -> Tensor:
        """Log-probabilities of `token_ids` (rows, n): float64 (rows, n)."""
        return self._normalized(self.logits.gather(1, token_ids))

    def _normalized(self, logits: Tensor) -> Tensor:
        # In this order: beside a logit at the limit of float32 the sum of both would not hold `log_total`.
        return (logits.double() - self.best.unsqueeze(1)) - self.log_total.unsqueeze(1)

    def mass(self, mask: Tensor) -> Tensor:
        """The probability of the tokens that `mask` (rows, vocab) marks: (rows,) float64."""
        return masked_sums(self.weights, mask) / self.total

    def mass_at(self, rows: Tensor, token_ids: Tensor) -> Tensor:
        """The probability that single tokens, (n,) and (n,) with none twice, have together in each row: (rows,)."""
        return torch.zeros_like(self.total).index_add_(0, rows, self.weights[rows, token_ids].double()) / self.total
