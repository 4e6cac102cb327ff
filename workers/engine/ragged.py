"""One forward pass over several sequences of unlike lengths, without padding.

A network treats every position by itself but for attention. So the new tokens of all sequences stand in one line, one
sequence after the other, each with its own position; the cache gives every sequence its part of the new keys and
values, and attention goes over the sequences one by one, each over its own cache. What a sequence attends to is what it
attends to alone: neighbours cannot reach it, and unlike lengths cost nothing.

transformers lets an attention function be named (`AttentionInterface`), and makes no mask for a name that it does not
know. The name is set for one pass at a time, so every other pass of the network is transformers' own.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin

from workers.engine.cache import SequenceCache

_NAME: Final = "decodelab_ragged"
# What networks tell an attention function that has no influence here.
_IDLE: Final = frozenset({"position_ids", "is_causal", "cache", "use_cache", "output_attentions"})


@dataclass(frozen=True, slots=True)
class Pass:
    """What one sequence computes in a step."""

    cache: SequenceCache
    token_ids: Sequence[Sequence[int]]  # the new ones of each row of the cache, equally many
    num_kept: int = 1  # of the last positions of each row, whose logits are wanted

    @property
    def num_positions(self) -> int:
        """New ones of each row."""
        return len(self.token_ids[0])


class RaggedNetwork:
    """Runs a network of transformers over several sequences at once."""

    def __init__(self, network: Any, device: torch.device) -> None:
        self._network = network
        self._device = device
        modules = (getattr(module, "config", None) for module in network.modules())
        self._configs = tuple({id(config): config for config in modules if config is not None}.values())

    def run(self, passes: Sequence[Pass]) -> list[Tensor]:
        """For each pass the raw logits (rows x num_kept, vocab) float32. Raises whatever the network does; the caches
        may then hold a part of the new positions."""
        line = _Line(passes)
        with self._attention():
            output = self._network(
                input_ids=torch.tensor([line.token_ids], device=self._device),
                position_ids=torch.tensor([line.position_ids], device=self._device),
                cache=_RaggedCache(line),
                use_cache=True,
                logits_to_keep=torch.tensor(line.kept, device=self._device),
                ragged=line,
            )
        logits: Tensor = output.logits[0].float()
        return list(torch.split(logits, [len(p.token_ids) * p.num_kept for p in passes]))

    @contextmanager
    def _attention(self) -> Iterator[None]:
        """The networks' configs name the function of this module."""
        names = [config._attn_implementation for config in self._configs]
        try:
            for config in self._configs:
                config._attn_implementation = _NAME
            yield
        finally:
            for config, name in zip(self._configs, names, strict=True):
                config._attn_implementation = name


class _Line:
    """The new tokens of several sequences in one line, and per layer what each of them attends to."""

    def __init__(self, passes: Sequence[Pass]) -> None:
        self.passes = passes
        self.token_ids = [token_id for p in passes for row in p.token_ids for token_id in row]
        self.position_ids: list[int] = []
        self.kept: list[int] = []  # places in the line
        self._bounds: list[tuple[int, int]] = []
        self._masks: dict[tuple[int, int, int | None], Tensor] = {}
        self._states: dict[int, list[tuple[Tensor, Tensor]]] = {}
        for p in passes:
            start = len(self.position_ids)
            first = p.cache.num_positions
            for _ in p.token_ids:
                self.position_ids += range(first, first + p.num_positions)
                self.kept += range(len(self.position_ids) - p.num_kept, len(self.position_ids))
            self._bounds.append((start, len(self.position_ids)))

    def write(self, layer_index: int, keys: Tensor, values: Tensor) -> None:
        """Give each sequence its part of a layer's new `keys` and `values`, (1, kv heads, line, head size)."""
        self._states[layer_index] = [
            p.cache.layers.layers[layer_index].update(_rows(keys, bounds, p), _rows(values, bounds, p))
            for p, bounds in zip(self.passes, self._bounds, strict=True)
        ]

    def attend(self, layer_index: int, queries: Tensor, rule: "_Rule") -> Tensor:
        """The output of a layer's attention, (1, line, heads, head size), for `queries` (1, heads, line, head size)."""
        outputs = []
        for p, bounds, (keys, values) in zip(self.passes, self._bounds, self._states.pop(layer_index), strict=True):
            mask = self._mask(p.num_positions, keys, rule.window)
            attended = rule.attend(_rows(queries, bounds, p), keys, values, mask)  # (rows, heads, positions, size)
            outputs.append(attended.transpose(1, 2).flatten(0, 1))
        return torch.cat(outputs).unsqueeze(0)

    def _mask(self, num_new: int, keys: Tensor, window: int | None) -> Tensor | None:
        """(positions, keys): what each of the last `num_new` positions sees. None where that is everything."""
        if num_new == 1:
            return None  # a layer with a window holds no key that lies outside it
        num_keys = keys.shape[2]
        shape = (num_new, num_keys, window)
        if shape not in self._masks:
            at = torch.arange(num_keys - num_new, num_keys, device=keys.device).unsqueeze(1)
            seen = torch.arange(num_keys, device=keys.device).unsqueeze(0)
            is_seen = seen <= at
            self._masks[shape] = is_seen if window is None else is_seen & (seen > at - window)
        return self._masks[shape]


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a layer's attention weighs what it sees."""

    scale: float | None
    softcap: float | None
    window: int | None

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """(rows, heads, positions, size) from `queries` of that shape; `keys`, `values`: (rows, kv heads, keys, size).

        The queries that share a key head stand one after the other as if they were further positions, so that no key
        is copied.
        """
        num_rows, num_heads, num_positions, _ = queries.shape
        num_shared = num_heads // keys.shape[1]
        together = queries.reshape(num_rows, keys.shape[1], num_shared * num_positions, -1)
        if mask is not None and num_shared > 1:
            mask = mask.repeat(num_shared, 1)
        if self.softcap is None:
            attended = functional.scaled_dot_product_attention(together, keys, values, attn_mask=mask, scale=self.scale)
        else:
            scale = queries.shape[-1] ** -0.5 if self.scale is None else self.scale
            attended = _softcapped(together * scale, keys, values, mask, cap=self.softcap)
        return attended.reshape(num_rows, num_heads, num_positions, -1)


def _softcapped(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, cap: float) -> Tensor:
    """As transformers computes it step by step; its fast attention cannot cap."""
    scores = torch.tanh(queries @ keys.transpose(2, 3) / cap) * cap
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1, dtype=torch.float32).to(queries.dtype) @ values


class _RaggedLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers ships no types
    """Stands where a network looks for one layer's cache."""

    def __init__(self, line: _Line, index: int) -> None:
        super().__init__()
        self._line = line
        self._index = index
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self._line.write(self._index, key_states, value_states)
        return key_states, value_states

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Each sequence's own layer does that."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1


class _RaggedCache(Cache):  # type: ignore[misc]  # transformers ships no types
    def __init__(self, line: _Line) -> None:
        num_layers = len(line.passes[0].cache.layers.layers)
        super().__init__(layers=[_RaggedLayer(line, index) for index in range(num_layers)])


def _attend(  # noqa: PLR0913 - the signature is transformers'
    module: Any,
    query: Tensor,  # (1, heads, line, head size)
    key: Tensor,  # noqa: ARG001 - the line has them
    value: Tensor,  # noqa: ARG001
    attention_mask: Tensor | None,  # noqa: ARG001 - there is none
    *,
    ragged: _Line,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    dropout: float = 0.0,  # noqa: ARG001 - networks are in evaluation mode
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function that the networks call. Refuses what it does not know, so that it is not left out."""
    _refuse_unknown(others)
    return ragged.attend(module.layer_idx, query, _Rule(scaling, softcap, sliding_window)), None


def _refuse_unknown(others: Mapping[str, Any]) -> None:
    unknown = [name for name, value in others.items() if value is not None and name not in _IDLE]
    if unknown:
        raise NotImplementedError(f"attention with {', '.join(unknown)}")


def _rows(states: Tensor, bounds: tuple[int, int], p: Pass) -> Tensor:
    """The part of `states` (1, heads, line, size) that belongs to one pass: (rows, heads, positions, size)."""
    part = states[:, :, bounds[0] : bounds[1]]
    if len(p.token_ids) == 1:
        return part
    _, num_heads, _, size = part.shape
    return part.view(num_heads, len(p.token_ids), p.num_positions, size).transpose(0, 1)


AttentionInterface.register(_NAME, _attend)
