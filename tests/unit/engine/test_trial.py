"""What the loader finds out by running a network, and the kinds that it refuses for it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Gemma3TextConfig

from models.errors import CheckpointBrokenError
from models.presence import LayerMemory
from tests.fakes import checkpoints
from tests.fakes.checkpoints import CONTEXT_LENGTH
from tests.fakes.families import FAMILIES, WINDOW, Family
from workers.engine.cache import GrowingLayer, SequenceCache
from workers.engine.checkpoint import UNBOUNDED_CONTEXT
from workers.engine.rotary import has_shifting_frequencies

SMALL: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
OUTSIDE_THE_CACHE = {
    "a state that is an argument of its own": Family("RwkvConfig", {**SMALL, "attention_hidden_size": 48}),
    "no memory at all": Family("OpenAIGPTConfig", {"n_embd": 48, "n_layer": 2, "n_head": 4}),
    "a state inside the network": Family("RecurrentGemmaConfig", {**SMALL, "num_hidden_layers": 3, "lru_width": 48}),
}
KEYS = 2 * 2 * 12 * 4  # keys and values of 2 heads of 12 in float32

# Worked by hand. Mamba's state: its inner size is 2 x 48; a convolution over 4 positions, and 8 numbers of state each.
MEMORY = {
    "llama": ((LayerMemory(2, KEYS),), 2, 12),
    "mistral": ((LayerMemory(2, KEYS, WINDOW - 1),), 2, 12),
    "gemma3": ((LayerMemory(2, 2 * 2 * 16 * 4, WINDOW - 1), LayerMemory(1, 2 * 2 * 16 * 4)), 2, 16),
    "falcon": ((LayerMemory(2, 2 * 1 * 12 * 4),), 1, 12),  # its config says 4 heads; all share one
    "mamba": ((LayerMemory(2, state_bytes=96 * (4 + 8) * 4),), 0, 0),
    "jamba": ((LayerMemory(2, state_bytes=96 * (4 + 8) * 4), LayerMemory(2, KEYS)), 2, 12),
}


@pytest.mark.parametrize("kind", OUTSIDE_THE_CACHE)
def test_a_network_that_remembers_elsewhere_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(CheckpointBrokenError, match=r"^tiny is of a kind \(\w+\) that does not keep all it has read"):
        OUTSIDE_THE_CACHE[kind].load(tmp_path / "tiny")


@pytest.mark.parametrize("name", MEMORY)
def test_what_a_sequence_takes_is_measured(tmp_path: Path, name: str) -> None:
    info = FAMILIES[name].load(tmp_path / "tiny").info
    assert (info.memory, info.num_kv_heads, info.head_size) == MEMORY[name]


def test_a_layer_without_a_window_grows_in_place_among_layers_that_have_one(tmp_path: Path) -> None:
    checkpoint = FAMILIES["gemma3"].load(tmp_path / "tiny")
    kinds = [type(layer) is GrowingLayer for layer in SequenceCache(checkpoint.network).layers.layers]
    assert kinds == [False, False, True]


LONG = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 6,
    "long_factor": [4.0] * 6,
    "original_max_position_embeddings": 64,
}


def test_frequencies_that_the_longest_position_of_a_pass_sets_are_for_one_sequence(tmp_path: Path) -> None:
    info = checkpoints.load(checkpoints.write_llama(tmp_path / "tiny", rope_parameters=LONG)).info
    assert info.alone_because.startswith("a pass's longest position sets its rotary frequencies")
    assert not info.is_fused


@pytest.mark.parametrize(
    "parameters",
    [
        {"rope_type": "default", "rope_theta": 1e4},
        {**LONG, "original_max_position_embeddings": CONTEXT_LENGTH},
        {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    ],
)
def test_frequencies_that_stay_over_the_whole_context_may_be_shared(tmp_path: Path, parameters: dict[str, Any]) -> None:
    checkpoint = checkpoints.load(checkpoints.write_llama(tmp_path / "tiny", rope_parameters=parameters))
    assert (checkpoint.info.alone_because, checkpoint.info.is_fused) == ("", True)
    rotary = checkpoint.network.model.rotary_emb
    short, long = (rotary(torch.zeros(1), torch.tensor([[0, 1, last]])) for last in (2, CONTEXT_LENGTH - 1))
    assert torch.equal(short[0][0, :2], long[0][0, :2]), "a neighbour at the end of the context changes nothing"


def test_frequencies_of_one_type_of_layers_are_enough(tmp_path: Path) -> None:
    """Gemma 3 has parameters for each type of layer."""
    folder = FAMILIES["gemma3"].write(tmp_path / "tiny")
    by_type = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": LONG}
    config = Gemma3TextConfig.from_pretrained(folder)
    assert not has_shifting_frequencies(config)
    config.rope_parameters = by_type
    assert has_shifting_frequencies(config)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("gpt2", {}, 128),
        ("mamba", {}, UNBOUNDED_CONTEXT),
        ("bloom", {}, UNBOUNDED_CONTEXT),
        ("bloom", {"seq_length": 2048}, 2048),
        ("jamba", {}, 128),
    ],
)
def test_the_context_is_what_the_config_names_or_has_no_bound(
    tmp_path: Path, name: str, changes: dict[str, Any], expected: int
) -> None:
    folder = FAMILIES[name].write(tmp_path / "tiny")
    change_config(folder, **changes)
    assert checkpoints.load(folder).info.context_length == expected


def test_a_network_with_positions_must_name_how_many(tmp_path: Path) -> None:
    folder = FAMILIES["llama"].write(tmp_path / "tiny")
    change_config(folder, max_position_embeddings=0)
    with pytest.raises(CheckpointBrokenError, match="names no context length"):
        checkpoints.load(folder)


def test_a_config_inside_a_config_is_read(tmp_path: Path) -> None:
    text = {**FAMILIES["gemma3"].values, "vocab_size": 512}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    family = Family("Gemma3Config", {"text_config": text, "vision_config": {**vision, "image_size": 28}})
    info = family.load(tmp_path / "tiny").info
    assert (info.architecture, info.context_length) == ("Gemma3ForConditionalGeneration", 128)
    assert (info.memory, info.num_kv_heads, info.head_size) == MEMORY["gemma3"]


def change_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
