"""A GGUF file becomes a checkpoint folder, once: unpacking takes about 20 s, loading safetensors 2 s."""

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from models.errors import CheckpointBrokenError, CheckpointMissingError

_MAGIC = b"GGUF"


def convert_gguf(gguf: Path, folder: Path, progress: Callable[[str, float], None]) -> None:
    """Write the network (float32 safetensors) and the tokenizer of the file `gguf` into `folder`.

    Raises CheckpointMissingError where there is no such file, CheckpointBrokenError where it cannot be read as the
    GGUF file of a causal language model.
    """
    if not gguf.is_file():
        raise CheckpointMissingError(f"{gguf} does not exist")
    with gguf.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise CheckpointBrokenError(f"{gguf} is no GGUF file: it does not begin with {_MAGIC.decode()}")
    progress("converting: tokenizer", 0.0)
    try:
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
        progress("converting: weights", 0.25)
        network = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            local_files_only=True,
            trust_remote_code=False,
        )
    except Exception as exc:
        raise CheckpointBrokenError(f"{gguf} cannot be read ({exc}); it may be cut off: fetch it again") from exc
    progress("converting: writing safetensors", 0.9)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # the weights are written for their owner alone; a worker may be another user
