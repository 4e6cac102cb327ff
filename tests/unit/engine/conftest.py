"""Loaded checkpoints."""

from tests.fakes.fixtures import (
    data_folder,
    default_checkpoint,
    few_threads,
    small,
    tiny,
    tiny_gpt2,
    tiny_llama,
)

__all__ = ["data_folder", "default_checkpoint", "few_threads", "small", "tiny", "tiny_gpt2", "tiny_llama"]
