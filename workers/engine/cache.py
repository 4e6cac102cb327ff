"""The keys and values of one sequence, and how many bytes they are.

transformers' own growing layer joins two tensors at every step, so each step copies the whole cache. The layer here
writes into spare room and doubles it when it is used up: a step copies one position.
"""

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

from models.presence import CheckpointInfo

_FIRST_POSITIONS = 256


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers ships no types
    """One attention layer's keys and values: views, (rows, kv heads, positions, head size), into larger buffers."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: torch.Tensor | None = None
        self._values: torch.Tensor | None = None
        self._num_positions = 0

    def update(
        self,
        key_states: torch.Tensor,  # (rows, kv heads, new positions, head size)
        value_states: torch.Tensor,
        *args: Any,  # noqa: ARG002 - the signature is transformers'
        **kwargs: Any,  # noqa: ARG002
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new positions and return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, end = self._num_positions, self._num_positions + key_states.shape[-2]
        self._keys = _grown(self._keys, key_states, start, end)
        self._values = _grown(self._values, value_states, start, end)
        self._keys[:, :, start:end] = key_states
        self._values[:, :, start:end] = value_states
        self._num_positions = end
        self.keys = self._keys[:, :, :end]
        self.values = self._values[:, :, :end]
        return self.keys, self.values


class SequenceCache:
    """The KV cache of one sequence, with its account.

    Checkpoints whose layers all attend to everything use `GrowingLayer`; others (sliding windows, linear attention)
    keep transformers' layers, which know their rules.
    """

    def __init__(self, network: Any, info: CheckpointInfo) -> None:
        self._info = info
        default = DynamicCache(config=getattr(network, "config", None))
        is_plain = all(type(layer) is DynamicLayer for layer in default.layers)
        self.layers = Cache(layer_class_to_replicate=GrowingLayer) if is_plain else default
        self.num_positions = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the positions that are held: layers x 2 x kv heads x head size x positions x bytes per number."""
        return self._info.kv_bytes(self.num_positions)

    @property
    def num_allocated_bytes(self) -> int:
        """Bytes that the device gave for it, the room to grow included."""
        tensors = [t for layer in self.layers.layers for t in (layer.keys, layer.values) if t is not None]
        return sum(t.untyped_storage().nbytes() for t in tensors)


def _grown(buffer: torch.Tensor | None, like: torch.Tensor, num_used: int, num_needed: int) -> torch.Tensor:
    """`buffer`, or a larger copy of it, with room for `num_needed` positions."""
    if buffer is not None and buffer.shape[-2] >= num_needed:
        return buffer
    rows, heads, _, size = like.shape
    larger = like.new_empty((rows, heads, max(_FIRST_POSITIONS, 2 * num_needed), size))
    if buffer is not None:
        larger[:, :, :num_used] = buffer[:, :, :num_used]
    return larger
