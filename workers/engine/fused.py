"""Steps of Llama-like networks over few positions on a CPU, by our own kernels.

transformers' forward pass goes through some 20 calls a layer; for few new positions they take longer than reading a
small network's weights does. `FusedNetwork` computes the same in one compiled call (`decode_step`), from the network's
own tensors, into the same caches: decode steps, texts that are scored, and short chunks of prompts. Long ones go
through the network, where large products pay.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from workers.engine.kernels import decode_step
from workers.engine.kernels.attention import BAND, Shape
from workers.engine.kernels.compiled import threads_for
from workers.engine.ragged import Pass
from workers.engine.rotary import has_shifting_frequencies
from workers.engine.rounding import Rounded

ARCHITECTURES: Final = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
MOST_POSITIONS: Final = 48
"""Of one sequence in a step; for more the network's own products are quicker."""

_KINDS: Final = {torch.float32: np.float32(0), torch.bfloat16: np.uint16(0)}


class FusedNetwork:
    """The short steps of a network that `is_fusable`. Holds its weights by their addresses, so also the network."""

    def __init__(self, network: Any) -> None:
        model, config = network.model, network.config
        weight = model.embed_tokens.weight
        attention = model.layers[0].self_attn
        self._network = network
        self._rotary = model.rotary_emb
        self._embedding = weight
        kind = _KINDS[weight.dtype]
        self._kinds = (kind if _rounded(network.lm_head) is None else np.int8(0), kind)
        self._eps = np.float32(config.rms_norm_eps)
        self._last_norm = model.norm.weight.data_ptr()
        self._head = np.array(_matrix(network.lm_head), np.int64)
        self._layers = np.array([_addresses(layer) for layer in model.layers], np.int64)
        self._shape = Shape(
            width=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_size=attention.head_dim,
            inner=config.intermediate_size,
            vocab=weight.shape[0],
        )

    def run(self, passes: Sequence[Pass]) -> list[Tensor]:
        """For each pass the raw logits (rows x num_kept, vocab) float32."""
        rows = _Rows(passes)
        x = torch.nn.functional.embedding(torch.tensor(rows.token_ids), self._embedding).float().numpy()
        cos, sin = self._rotary(self._embedding, torch.from_numpy(rows.lengths - 1).unsqueeze(0))
        angles = (cos[0].float().numpy(), sin[0].float().numpy())
        logits = np.empty((len(rows.wanted), self._shape.vocab), np.float32)
        weights = (self._kinds, self._shape, self._layers, self._last_norm, self._head, self._eps)
        places = np.concatenate([self._places(p) for p in passes], axis=1)
        with threads_for(len(self._layers) * self._shape.heads):
            decode_step.step(*weights, x, *angles, places, rows.lengths, rows.bands, rows.wanted, logits)
        for p in passes:
            p.cache.appended(p.num_positions)
        return list(torch.split(torch.from_numpy(logits), [len(p.token_ids) * p.num_kept for p in passes]))

    def _places(self, single: Pass) -> NDArray[np.int64]:
        """For each new position (layers, rows x positions, 3), see `SequenceCache.places`."""
        cache = single.cache
        if cache.num_positions == 0:
            cache.open(self._embedding.new_empty((cache.num_rows, self._shape.kv_heads, 0, self._shape.head_size)))
        return cache.places(cache.num_positions + single.num_positions).repeat(single.num_positions, axis=1)


class _Rows:
    """All new positions of several passes, those of one row of a cache one after the other."""

    def __init__(self, passes: Sequence[Pass]) -> None:
        self.token_ids = [token_id for p in passes for row in p.token_ids for token_id in row]
        lengths: list[int] = []
        bands: list[tuple[int, int]] = []
        wanted: list[int] = []
        for p in passes:
            for _ in p.token_ids:
                first, end = len(lengths), len(lengths) + p.num_positions
                lengths += range(p.cache.num_positions + 1, p.cache.num_positions + p.num_positions + 1)
                bands += [(start, min(BAND, end - start)) for start in range(first, end, BAND)]
                wanted += range(end - p.num_kept, end)
        self.lengths, self.bands, self.wanted = np.array(lengths), np.array(bands), np.array(wanted)


def is_fusable(network: Any) -> bool:
    """Whether the kernels have all that a network's layers do. That they do it alike, a comparison shows."""
    if type(network).__name__ not in ARCHITECTURES:
        return False
    weight, config = network.model.embed_tokens.weight, network.config
    layers = DynamicCache(config=config).layers
    return (
        weight.device.type == "cpu"
        and config.hidden_act == "silu"
        and not getattr(config, "mlp_bias", False)
        and not has_shifting_frequencies(config)
        and all(type(layer) is DynamicLayer for layer in layers)
        and network.lm_head.bias is None
        and all(p.dtype is weight.dtype and p.dtype in _KINDS and p.is_contiguous() for p in network.parameters())
    )


def _addresses(layer: Any) -> NDArray[np.int64]:
    """A layer's row of `decode_step.step`'s table."""
    attention, feed = layer.self_attn, layer.mlp
    row = np.zeros(decode_step.NUM_COLUMNS, np.int64)
    row[decode_step.NORM] = layer.input_layernorm.weight.data_ptr()
    row[decode_step.NORM_2] = layer.post_attention_layernorm.weight.data_ptr()
    for linear, at, scale_at, bias_at in (
        (attention.q_proj, decode_step.Q, decode_step.Q_SCALE, decode_step.Q_BIAS),
        (attention.k_proj, decode_step.K, decode_step.K_SCALE, decode_step.K_BIAS),
        (attention.v_proj, decode_step.V, decode_step.V_SCALE, decode_step.V_BIAS),
        (attention.o_proj, decode_step.O, decode_step.O_SCALE, decode_step.O_BIAS),
    ):
        row[at], row[scale_at] = _matrix(linear)
        row[bias_at] = linear.bias.data_ptr() if linear.bias is not None else 0
    for norm, at in (("q_norm", decode_step.Q_NORM), ("k_norm", decode_step.K_NORM)):
        module = getattr(attention, norm, None)
        row[at] = module.weight.data_ptr() if module is not None else 0
    for linear, at, scale_at in (
        (feed.gate_proj, decode_step.GATE, decode_step.GATE_SCALE),
        (feed.up_proj, decode_step.UP, decode_step.UP_SCALE),
        (feed.down_proj, decode_step.DOWN, decode_step.DOWN_SCALE),
    ):
        row[at], row[scale_at] = _matrix(linear)
    return row


def _matrix(linear: Any) -> tuple[int, int]:
    """The addresses of a layer's numbers and of their scales, 0 where they have none."""
    rounded = _rounded(linear)
    if rounded is None:
        return linear.weight.data_ptr(), 0
    return rounded.numbers.data_ptr(), rounded.scales.data_ptr()


def _rounded(linear: Any) -> Rounded | None:
    found: Rounded | None = getattr(linear, "rounded", None)
    return found
