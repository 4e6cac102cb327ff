"""Weights of 8 bits: a number of a matrix is a whole number of its row's scale.

A step on a CPU takes as long as reading every weight once, and a quarter of the bytes is a quarter of the reading.
Nothing but the weights is rounded: the network keeps the rounded ones in float32 for its own passes, the kernels read
the whole numbers and multiply by the scale what they have added up. So both compute the same network, and what int8
costs in accuracy is the rounding alone, once, when a checkpoint is loaded.
"""

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

LARGEST: Final = 127  # symmetric: -128 is not used


@dataclass(frozen=True, slots=True)
class Rounded:
    """A matrix (rows, width) as `numbers` int8 times `scales` (rows,) float32."""

    numbers: Tensor
    scales: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> "Rounded":
        """Each row's largest magnitude becomes LARGEST; every other number the nearest, the even one of two."""
        scales = weight.abs().amax(dim=1) / LARGEST
        scales[scales == 0] = 1.0
        numbers = (weight / scales.unsqueeze(1)).round().clamp(-LARGEST, LARGEST).to(torch.int8)
        return cls(numbers.contiguous(), scales.contiguous())

    @property
    def values(self) -> Tensor:
        """The matrix in float32."""
        return self.numbers.float() * self.scales.unsqueeze(1)


@torch.no_grad()
def round_weights(network: Any) -> None:
    """Round every linear layer of a float32 network in place, with what is tied to it. Each gets `rounded: Rounded`."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            rounded = Rounded.of(layer.weight)
            layer.weight.copy_(rounded.values)
            layer.rounded = rounded  # type: ignore[assignment]  # torch takes any attribute
