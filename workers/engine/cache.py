"""The keys and values of one sequence, and how many bytes they are.

transformers' own growing layer joins two tensors at every step, so each step copies the whole cache. The layer here
writes into spare room and gets more when it is used up: a step copies one position. A beam search has a row for each
beam; what they share, the prompt, is copied once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

_FIRST_POSITIONS = 256
_ROOM_STEP = 64


def room_for(num_positions: int) -> int:
    """Positions that a buffer has room for once it must hold `num_positions`: a quarter more, so that in growing to any
    length each position is copied about four times, and never much more memory is taken than is used."""
    return max(_FIRST_POSITIONS, -(-(num_positions + num_positions // 4) // _ROOM_STEP) * _ROOM_STEP)


@dataclass(frozen=True, slots=True)
class Room:
    """How much a buffer gets when it grows."""

    num_expected: int = 0
    """Positions that are sure to come: growing to them is no copy."""

    num_spare: int = 0
    """Positions beyond `room_for`, or short of the first room; unlike for sequences of one age, so that they do not all
    grow in one step."""

    def of(self, num_positions: int) -> int:
        """Positions that there is room for, once a buffer must hold `num_positions`."""
        num_needed = max(num_positions, self.num_expected)
        first = _FIRST_POSITIONS - self.num_spare
        return first if num_needed <= first else room_for(num_needed) + self.num_spare


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers ships no types
    """One attention layer's keys and values: views, (rows, kv heads, positions, head size), into larger buffers."""

    def __init__(self) -> None:
        self._keys: torch.Tensor | None = None
        self._values: torch.Tensor | None = None
        super().__init__()
        self._num_positions = 0
        self._num_shared = 0  # positions, from the first on, at which all rows are equal
        self.room = Room()

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
        self._keys = _grown(self._keys, key_states, start, end, self.room)
        self._values = _grown(self._values, value_states, start, end, self.room)
        self._keys[:, :, start:end] = key_states
        self._values[:, :, start:end] = value_states
        self._num_positions = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Make each row a copy of the row that `beam_idx` names for it; there may be more rows than before, or fewer.

        Overrides transformers' method, which would leave the buffers as they were.
        """
        if self._keys is None or self._values is None:
            return
        if self._keys.shape[0] == 1:
            self._num_shared = self._num_positions
        rows = beam_idx.to(self._keys.device)
        self._keys = self._selected(self._keys, rows)
        self._values = self._selected(self._values, rows)

    def _selected(self, buffer: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        start, end = self._num_shared, self._num_positions
        if len(rows) != buffer.shape[0]:
            larger = buffer.new_empty((len(rows), *buffer.shape[1:]))
            larger[:, :, :end] = buffer[rows, :, :end]
            return larger
        buffer[:, :, start:end] = buffer[rows, :, start:end]
        return buffer

    def shorten(self, num_positions: int) -> None:
        """Forget all positions but the first ones. The buffers stay."""
        self._num_positions = num_positions

    def beginning(self, num_positions: int, room: Room) -> "GrowingLayer":
        """A layer of its own with copies of the first positions."""
        layer = GrowingLayer()
        layer.room = room
        if self._keys is not None and self._values is not None:
            layer.update(self._keys[:, :, :num_positions], self._values[:, :, :num_positions])
        return layer

    def reserve(self, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The buffers of keys and values, with room for so many positions, after the first `update`."""
        assert self._keys is not None
        assert self._values is not None
        self._keys = _grown(self._keys, self._keys, self._num_positions, num_positions, self.room)
        self._values = _grown(self._values, self._values, self._num_positions, num_positions, self.room)
        return self._keys, self._values

    def appended(self, number: int) -> None:
        """So many positions have been written into the buffers, behind those that were there."""
        self._num_positions += number

    @property
    def keys(self) -> torch.Tensor | None:
        """Those of all positions; None before the first."""
        return None if self._keys is None else self._keys[:, :, : self._num_positions]

    @keys.setter
    def keys(self, _: torch.Tensor | None) -> None:
        """transformers' constructors set it; what is there is in the buffer."""

    @property
    def values(self) -> torch.Tensor | None:
        """Those of all positions; None before the first."""
        return None if self._values is None else self._values[:, :, : self._num_positions]

    @values.setter
    def values(self, _: torch.Tensor | None) -> None:
        """As for keys."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of a cache at one moment."""

    num_positions: int
    foreign: dict[int, dict[str, Any]]  # by layer: the attributes of those that are not ours


class SequenceCache:
    """The cache of one sequence, with its account.

    A layer that attends to everything is a `GrowingLayer`; others (sliding windows, recurrent states) are
    transformers' own, which know their rules.
    """

    def __init__(self, network: Any) -> None:
        default = DynamicCache(config=getattr(network, "config", None)).layers
        layers = [GrowingLayer() if type(layer) is DynamicLayer else layer for layer in default]
        self.layers = Cache(layers=layers) if layers else Cache(layer_class_to_replicate=GrowingLayer)
        self.num_rows = 1
        self.num_positions = 0  # of each row
        self.room = Room()
        self._placed: tuple[torch.Tensor, NDArray[np.int64]] | None = None  # the first layer's buffer, all `places`

    def mark(self) -> "Mark":
        """What `restore` needs to undo what comes after. Layers that are not ours replace their tensors, so that the
        old ones stay as they are; recurrent ones change theirs and cannot go back."""
        foreign = {i: dict(vars(layer)) for i, layer in enumerate(self.layers.layers) if not _is_growing(layer)}
        return Mark(self.num_positions, foreign)

    def restore(self, mark: "Mark") -> None:
        """Be as at `mark` again, after a pass that failed half-way."""
        self.num_positions = mark.num_positions
        for index, layer in enumerate(self.layers.layers):
            if _is_growing(layer):
                layer.shorten(mark.num_positions)
            else:
                vars(layer).clear()
                vars(layer).update(mark.foreign[index])

    @property
    def is_shareable(self) -> bool:
        """Whether its first positions may be copied into another sequence's cache. Not where a window has forgotten
        some, where a state holds them all at once, or where there are several rows."""
        has_all = all(_is_growing(layer) or _holds_all(layer) for layer in self.layers.layers)
        return has_all and self.num_rows == 1

    def beginning(self, num_positions: int, room: Room = Room()) -> "SequenceCache":
        """A cache of its own with copies of the first positions of one that is shareable."""
        copy = SequenceCache.__new__(SequenceCache)
        layers = [_beginning(layer, num_positions, room) for layer in self.layers.layers]
        copy.layers = Cache(layers=layers)
        copy.num_rows, copy.num_positions = 1, num_positions
        copy.room = room
        copy._placed = None
        return copy

    def make_room(self, room: Room) -> None:
        """Say, before the first position, how the buffers are to grow."""
        self.room = room
        for layer in self.layers.layers:
            if _is_growing(layer):
                layer.room = room

    def open(self, empty: torch.Tensor) -> None:
        """Let `places` be asked for before there is a position; `empty`: keys of none, (rows, heads, 0, head size)."""
        for layer in self.layers.layers:
            layer.update(empty, empty)

    def places(self, num_positions: int) -> NDArray[np.int64]:
        """(layers, rows, 3): where the keys and values of each row begin, and how many positions have room there, which
        are at least so many. For a cache whose layers all grow, and that holds a position or was opened."""
        if self._placed is not None and self._placed[0] is self.layers.layers[0].reserve(num_positions)[0]:
            return self._placed[1]
        places = np.empty((len(self.layers.layers), self.num_rows, 3), np.int64)
        for index, layer in enumerate(self.layers.layers):
            keys, values = layer.reserve(num_positions)
            size = keys.stride(0) * keys.element_size()
            for row in range(self.num_rows):
                places[index, row] = keys.data_ptr() + row * size, values.data_ptr() + row * size, keys.shape[2]
        # Layers get new buffers all together, and the first of them first.
        self._placed = (self.layers.layers[0].reserve(num_positions)[0], places)
        return places

    def appended(self, number: int) -> None:
        """So many positions of each row have been written at its `places`."""
        for layer in self.layers.layers:
            layer.appended(number)

    def select_rows(self, rows: Sequence[int]) -> None:
        """Make each row a copy of the present row that `rows` names for it: what beams do with those they continue."""
        if list(rows) == list(range(self.num_rows)):
            return
        self.layers.reorder_cache(torch.tensor(rows, dtype=torch.int64))
        self.num_rows = len(rows)

    @property
    def num_held(self) -> int:
        """Positions that are held, over all rows."""
        return self.num_rows * self.num_positions

    @property
    def num_bytes(self) -> int:
        """Bytes of the keys, values and states that are held; `CheckpointInfo.kv_bytes` is the formula for one row."""
        return sum(t.nbytes for t in self._held)

    @property
    def num_allocated_bytes(self) -> int:
        """Bytes that the device gave for it, the room to grow included."""
        return sum(t.untyped_storage().nbytes() for t in self._held)

    @property
    def _held(self) -> list[torch.Tensor]:
        return [t for layer in self.layers.layers for t in held_positions(layer) + held_states(layer)]


def _is_growing(layer: Any) -> bool:
    return isinstance(layer, GrowingLayer)


def _holds_all(layer: Any) -> bool:
    """Whether a layer with a window has not forgotten a position yet."""
    if type(layer) is not DynamicSlidingWindowLayer:
        return False
    return not layer.is_initialized or layer.keys.shape[-2] == layer.cumulative_length


def _beginning(layer: Any, num_positions: int, room: Room) -> Any:
    if _is_growing(layer):
        return layer.beginning(num_positions, room)
    begun = DynamicSlidingWindowLayer(layer.sliding_window)
    if layer.is_initialized:
        begun.update(layer.keys[:, :, :num_positions], layer.values[:, :, :num_positions])
    return begun


def held_positions(layer: Any) -> list[torch.Tensor]:
    """The tensors of a layer of transformers' cache that grow with the positions; none before its first pass."""
    tensors = (getattr(layer, name, None) for name in ("keys", "values", "indexer_keys"))
    return [t for t in tensors if t is not None]


def held_states(layer: Any) -> list[torch.Tensor]:
    """The tensors of a recurrent layer, which stay as large as they are; none before its first pass."""
    states = (getattr(layer, name, {}).values() for name in ("conv_states", "recurrent_states"))
    return [t for tensors in states for t in tensors if t is not None]


def _grown(buffer: torch.Tensor | None, like: torch.Tensor, num_used: int, num_needed: int, room: Room) -> torch.Tensor:
    """`buffer`, or a larger copy of it, with room for `num_needed` positions."""
    if buffer is not None and buffer.shape[-2] >= num_needed:
        return buffer
    rows, heads, _, size = like.shape
    larger = like.new_empty((rows, heads, room.of(num_needed), size))
    if buffer is not None:
        larger[:, :, :num_used] = buffer[:, :, :num_used]
    return larger
