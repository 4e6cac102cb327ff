"""Decode steps of Llama-like networks on a CPU by our own kernels.

transformers' forward pass goes through some 20 calls a layer; for one new position they take longer than reading a
small network's weights does. `FusedNetwork` computes the same in one compiled call (`kernels`), from the network's own
tensors, into the same caches. Prompts still go through the network, where large products pay.
"""

import threading
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from workers.engine import kernels
from workers.engine.ragged import Pass

ARCHITECTURES: Final = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_LOCK: Final = threading.Lock()
"""numba's own threads, where the machine has no OpenMP, serve one caller at a time."""
_KINDS: Final = {torch.float32: np.float32(0), torch.bfloat16: np.uint16(0)}


class FusedNetwork:
    """The decode steps of a network that `is_fusable`. Holds its weights by their addresses, so also the network."""

    def __init__(self, network: Any) -> None:
        model, config = network.model, network.config
        weight = model.embed_tokens.weight
        attention = model.layers[0].self_attn
        self._network = network
        self._rotary = model.rotary_emb
        self._embedding = weight
        self._kind = _KINDS[weight.dtype]
        self._eps = np.float32(config.rms_norm_eps)
        self._last_norm, self._head = model.norm.weight.data_ptr(), network.lm_head.weight.data_ptr()
        self._layers = np.array([_addresses(layer) for layer in model.layers], np.int64)
        self._shape = kernels.Shape(
            width=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_size=attention.head_dim,
            inner=config.intermediate_size,
            vocab=weight.shape[0],
        )

    def run(self, passes: Sequence[Pass]) -> list[Tensor]:
        """For each pass, over one new position of each of its rows, the raw logits (rows, vocab) float32."""
        token_ids = torch.tensor([row[0] for p in passes for row in p.token_ids])
        lengths = np.array([p.cache.num_positions + 1 for p in passes for _ in p.token_ids])
        places = np.concatenate([p.cache.places(p.cache.num_positions + 1) for p in passes], axis=1)
        x = torch.nn.functional.embedding(token_ids, self._embedding).float().numpy()
        cos, sin = self._rotary(self._embedding, torch.from_numpy(lengths - 1).unsqueeze(0))
        logits = np.empty((len(lengths), self._shape.vocab), np.float32)
        weights = (self._kind, self._shape, self._layers, self._last_norm, self._head, self._eps)
        with _LOCK:
            kernels.set_threads(torch.get_num_threads())
            kernels.step(*weights, x, cos[0].float().numpy(), sin[0].float().numpy(), places, lengths, logits)
        for p in passes:
            p.cache.appended(1)
        return list(torch.split(torch.from_numpy(logits), [len(p.token_ids) for p in passes]))


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
        and all(type(layer) is DynamicLayer for layer in layers)
        and network.lm_head.bias is None
        and all(p.dtype is weight.dtype and p.dtype in _KINDS and p.is_contiguous() for p in network.parameters())
    )


def _addresses(layer: Any) -> NDArray[np.int64]:
    """A layer's row of `kernels.step`'s table."""
    attention, feed = layer.self_attn, layer.mlp
    row = np.zeros(kernels.NUM_COLUMNS, np.int64)
    row[kernels.NORM] = layer.input_layernorm.weight.data_ptr()
    row[kernels.NORM_2] = layer.post_attention_layernorm.weight.data_ptr()
    for linear, at, bias_at in (
        (attention.q_proj, kernels.Q, kernels.Q_BIAS),
        (attention.k_proj, kernels.K, kernels.K_BIAS),
        (attention.v_proj, kernels.V, kernels.V_BIAS),
        (attention.o_proj, kernels.O, kernels.O_BIAS),
    ):
        row[at] = linear.weight.data_ptr()
        row[bias_at] = linear.bias.data_ptr() if linear.bias is not None else 0
    for norm, at in (("q_norm", kernels.Q_NORM), ("k_norm", kernels.K_NORM)):
        module = getattr(attention, norm, None)
        row[at] = module.weight.data_ptr() if module is not None else 0
    for linear, at in ((feed.gate_proj, kernels.GATE), (feed.up_proj, kernels.UP), (feed.down_proj, kernels.DOWN)):
        row[at] = linear.weight.data_ptr()
    return row
