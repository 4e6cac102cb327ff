"""Tiny checkpoints with random weights, written to folders so that they come in through the real loader.

One turns positions (Llama), the other looks them up (GPT-2): a wrong position shows in the second alone. Both have a
vocabulary a little larger than their tokenizer's, as many real ones do.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tests.fakes import tokenizers
from workers.engine.catalog import Catalog, CatalogEntry
from workers.engine.checkpoint import Checkpoint, load_checkpoint

VOCAB_SIZE = 512
SMALL_VOCAB_SIZE = 30  # few enough for a token's account to show every one
CONTEXT_LENGTH = 128
# Large enough that the next token is not nearly uniform, so that settings make a difference.
_SPREAD = 0.35


def write_llama(folder: Path, tokenizer: PreTrainedTokenizerFast | None = None, **changes: Any) -> Path:
    """A Llama-type checkpoint: rotary positions, grouped keys and values."""
    tokenizer = tokenizer or tokenizers.words()
    config = LlamaConfig(
        **{
            "vocab_size": VOCAB_SIZE,
            "hidden_size": 48,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": CONTEXT_LENGTH,
            "initializer_range": _SPREAD,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": None,
            **changes,
        }
    )
    return write(folder, lambda: LlamaForCausalLM(config), tokenizer)


def write_gpt2(folder: Path, tokenizer: PreTrainedTokenizerFast | None = None, **changes: Any) -> Path:
    """A GPT-2-type checkpoint: learned absolute positions."""
    tokenizer = tokenizer or tokenizers.words()
    config = GPT2Config(
        **{
            "vocab_size": VOCAB_SIZE,
            "n_embd": 48,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": CONTEXT_LENGTH,
            "initializer_range": _SPREAD,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            **changes,
        }
    )
    return write(folder, lambda: GPT2LMHeadModel(config), tokenizer)


def load(folder: Path, *, name: str = "tiny", device: str = "cpu", dtype: str = "float32") -> Checkpoint:
    """Load a folder as an operator's only checkpoint."""
    return load_entry(Catalog.parse(f"{name}={folder}", folder.parent).entry(), device=device, dtype=dtype)


def load_entry(entry: CatalogEntry, *, device: str = "cpu", dtype: str = "float32") -> Checkpoint:
    """Load a prepared entry of an operator's list."""
    return load_checkpoint(entry, device=device, dtype=dtype)


def write(folder: Path, build: Callable[[], Any], tokenizer: PreTrainedTokenizerFast) -> Path:
    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(20_240_607)
        network = build()
    network.generation_config.eos_token_id = tokenizer.eos_token_id
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
