"""What a network is like that its config does not say well, found out in a few passes when it is loaded.

Configs name heads, windows and states in many ways, and some name what the network then does not do. What a cache holds
after one pass cannot be wrong.
"""

import inspect
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers.cache_utils import DummyLayer, LinearAttentionCacheLayerMixin

from models.errors import CheckpointBrokenError
from models.presence import LayerMemory
from workers.engine.cache import SequenceCache, held_positions, held_states
from workers.engine.fused import FusedNetwork, is_fusable
from workers.engine.ragged import Pass, RaggedNetwork
from workers.engine.rotary import has_shifting_frequencies

_logger = logging.getLogger(__name__)

_SAME_LOGPROB: Final = 0.05  # nats; rounding in bfloat16 stays below, a lost state is off by several
# The kernels round less than a network in bfloat16 does: unlikely tokens differ by tenths, the others by thousandths.
_SAME_STEP: Final = {torch.float32: 1e-3, torch.bfloat16: 0.1}  # nats, weighed by probability
_RECURRENT: Final = "its recurrent layers take in every position of a pass, so padding would enter a sequence's state"
_OWN_ATTENTION: Final = "its attention is code of its own, which cannot be told whose keys a token attends to"
_SHIFTING: Final = "a pass's longest position sets its rotary frequencies, so a sequence would depend on its neighbours"
_COUNTING: Final = "it counts positions from the start of a pass, so sequences of unlike length would stand wrong"


@dataclass(frozen=True, slots=True)
class Findings:
    """The same facts as in `CheckpointInfo`, and whether the network is told where a token stands."""

    memory: tuple[LayerMemory, ...]
    num_kv_heads: int  # of the first layer that has keys; 0 where none has
    head_size: int
    prefills_whole: bool
    alone_because: str
    takes_positions: bool
    is_fused: bool


@torch.inference_mode()
def try_out(network: Any, *, name: str, vocab_size: int) -> Findings:
    """Run one position, and six in two ways where states are recurrent. The first run does not pay for warming up.

    Raises CheckpointBrokenError for a network that cannot run, gives logits of another shape, or remembers a sequence
    in another place than the cache it is given: its passes would forget each other, or share what they remember.
    """
    ids = [i * vocab_size // 7 for i in range(1, 7)]
    device = network.get_input_embeddings().weight.device
    cache = SequenceCache(network)
    try:
        shape = tuple(_forward(network, ids[:1], cache).shape)
    except Exception as exc:
        raise CheckpointBrokenError(f"{name} cannot run on {device}: {exc}") from exc
    if shape != (1, 1, vocab_size):
        raise CheckpointBrokenError(f"{name} gives logits of shape {shape}, not (1, 1, {vocab_size})")
    layers = [layer for layer in cache.layers.layers if not isinstance(layer, DummyLayer)]
    if _has_gaps(layers):
        raise CheckpointBrokenError(
            f"{name} is of a kind ({type(network).__name__}) that does not keep all it has read in the cache it is "
            "given, so no run could go on from its last token; choose another checkpoint"
        )
    is_recurrent = any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in layers)
    takes_positions = _takes_positions(network)
    keys = next((layer.keys for layer in layers if getattr(layer, "keys", None) is not None), None)
    return Findings(
        memory=_memory(layers),
        num_kv_heads=0 if keys is None else keys.shape[1],
        head_size=0 if keys is None else keys.shape[-1],
        prefills_whole=is_recurrent and not _goes_on(network, ids),
        alone_because=_alone_because(network, ids, is_recurrent=is_recurrent, takes_positions=takes_positions),
        takes_positions=takes_positions,
        is_fused=_decodes_alike(network, ids),
    )


def _forward(network: Any, token_ids: Sequence[int], cache: SequenceCache) -> torch.Tensor:
    """Logits (1, 1, vocab) after the last of `token_ids`, which go into the cache."""
    device = network.get_input_embeddings().weight.device
    start, end = cache.num_positions, cache.num_positions + len(token_ids)
    output = network(
        input_ids=torch.tensor([token_ids], device=device),
        position_ids=torch.arange(start, end, device=device).unsqueeze(0),
        cache=cache.layers,
        use_cache=True,
        logits_to_keep=1,
    )
    cache.num_positions = end
    logits: torch.Tensor = output.logits
    return logits


def _goes_on(network: Any, token_ids: Sequence[int]) -> bool:
    """Whether a pass over several positions goes on from the state that an earlier pass left behind.

    In transformers 5.24 Mamba and Jamba begin anew unless the pass is over exactly one position.
    """
    middle = len(token_ids) // 2
    in_one, in_two = SequenceCache(network), SequenceCache(network)
    whole = _forward(network, token_ids, in_one)
    _forward(network, token_ids[:middle], in_two)
    parts = _forward(network, token_ids[middle:], in_two)
    difference = (whole.float().log_softmax(-1) - parts.float().log_softmax(-1)).abs().max()
    return bool(difference <= _SAME_LOGPROB)  # false for NaN as well


def _alone_because(network: Any, token_ids: Sequence[int], *, is_recurrent: bool, takes_positions: bool) -> str:
    """Why every sequence needs a pass of its own; empty where several can share one."""
    if is_recurrent:
        return _RECURRENT
    if not takes_positions:
        return _COUNTING
    if has_shifting_frequencies(network.config):
        return _SHIFTING
    return "" if _shares_passes(network, token_ids) else _OWN_ATTENTION


def _shares_passes(network: Any, token_ids: Sequence[int]) -> bool:
    """Whether two sequences of unlike length have the same numbers in one pass as alone."""
    device = network.get_input_embeddings().weight.device
    parts = [token_ids, token_ids[:2]]
    together = RaggedNetwork(network, device)
    try:
        answers = together.run([Pass(SequenceCache(network), [ids]) for ids in parts])
    except Exception as exc:  # noqa: BLE001 - networks answer in many ways to what they do not expect
        _logger.info("sequences cannot share a pass: %s", exc)
        return False
    alone = [_forward(network, ids, SequenceCache(network))[:, 0] for ids in parts]
    differences = [
        (a.float().log_softmax(-1) - b.log_softmax(-1)).abs().max() for a, b in zip(alone, answers, strict=True)
    ]
    return all(bool(difference <= _SAME_LOGPROB) for difference in differences)


def _decodes_alike(network: Any, token_ids: Sequence[int]) -> bool:
    """Whether the kernels give what the network gives for one more position of two sequences of unlike length."""
    if not is_fusable(network):
        return False
    parts = [token_ids[:-1], token_ids[:1]]
    caches = [SequenceCache(network) for _ in parts]
    for ids, cache in zip(parts, caches, strict=True):
        _forward(network, ids, cache)
    try:
        answers = FusedNetwork(network).run([Pass(cache, [token_ids[-1:]]) for cache in caches])
    except Exception:  # the network itself can always go on
        _logger.exception("the kernels cannot run here, so every step is the network's own pass")
        return False
    for ids, answer in zip(parts, answers, strict=True):
        wanted = _forward(network, [*ids, token_ids[-1]], SequenceCache(network))[0].float().log_softmax(-1)
        difference = ((answer.log_softmax(-1) - wanted).abs() * wanted.exp()).sum()
        if not difference <= _SAME_STEP[network.dtype]:
            _logger.warning("the kernels differ from the network by %.3g nats and are not used", difference)
            return False
    return True


def _has_gaps(layers: Sequence[Any]) -> bool:
    """Whether a pass has left a recurrent layer, or all layers, with nothing. Attention may share a layer's keys."""
    is_empty = [not held_positions(layer) and not held_states(layer) for layer in layers]
    recurrent = (isinstance(layer, LinearAttentionCacheLayerMixin) for layer in layers)
    return all(is_empty) or any(e and r for e, r in zip(is_empty, recurrent, strict=True))


def _takes_positions(network: Any) -> bool:
    """Whether the network is told where its tokens stand. One with ALiBi ignores it, even where it has the argument."""
    has_argument = "position_ids" in inspect.signature(network.forward).parameters
    return has_argument and not getattr(network.config.get_text_config(), "alibi", False)


def _memory(layers: Sequence[Any]) -> tuple[LayerMemory, ...]:
    """What layers hold after one position, alike ones together, in the order in which they first come."""
    kinds = Counter(_kind(layer) for layer in layers)
    return tuple(LayerMemory(number, *kind) for kind, number in kinds.items())


def _kind(layer: Any) -> tuple[int, int | None, int]:
    """Bytes a position, most positions, bytes of the state."""
    max_positions = layer.sliding_window - 1 if getattr(layer, "is_sliding", False) else None
    per_position, state = (sum(t.nbytes for t in tensors) for tensors in (held_positions(layer), held_states(layer)))
    return per_position, max_positions, state
