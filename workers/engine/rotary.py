"""Rotary positions whose frequencies are not the same in every pass."""

from collections.abc import Mapping
from typing import Any, Final

_SHIFTING: Final = "longrope"


def has_shifting_frequencies(config: Any) -> bool:
    """Whether the longest position of a pass decides how all of its positions are turned, within the context.

    LongRoPE (Ding et al. 2024) has other frequencies once a pass goes beyond the length that the network was first
    trained for. The dynamic ones of transformers change only beyond `max_position_embeddings`, where the context ends.
    """
    text = config.get_text_config()
    parameters = getattr(text, "rope_parameters", None) or {}
    by_layer_type = [value for value in parameters.values() if isinstance(value, Mapping)]  # or one for all layers
    return any(_shifts(one, text) for one in by_layer_type or [parameters])


def _shifts(parameters: Mapping[str, Any], config: Any) -> bool:
    if parameters.get("rope_type") != _SHIFTING:
        return False
    first_length: int = parameters["original_max_position_embeddings"]  # transformers puts it there where it is missing
    num_positions: int = config.max_position_embeddings
    return first_length < num_positions
