"""A whole GGUF file of a small network."""

from pathlib import Path

import gguf
import numpy as np

from tests.fakes import tokenizers


def write_gguf(file: Path, *, seed: int = 0) -> Path:
    """A whole Llama-type GGUF file with one small layer."""
    hidden, inner, vocab, heads = 32, 64, 300, 2
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_block_count(1)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_vocab_size(vocab)
    vocabulary = sorted(tokenizers.words().get_vocab().items(), key=lambda item: item[1])[: vocab - 1]
    tokens = [token for token, _ in vocabulary] + ["<|end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (vocab - 1) + [3])
    writer.add_token_merges(["Ġ t", "Ġt h", "Ġth e"])
    writer.add_eos_token_id(vocab - 1)
    writer.add_bos_token_id(vocab - 1)
    shapes = {
        "token_embd.weight": (vocab, hidden),
        "output.weight": (vocab, hidden),
        "output_norm.weight": (hidden,),
        "blk.0.attn_norm.weight": (hidden,),
        "blk.0.ffn_norm.weight": (hidden,),
        **{f"blk.0.attn_{name}.weight": (hidden, hidden) for name in ("q", "k", "v", "output")},
        "blk.0.ffn_gate.weight": (inner, hidden),
        "blk.0.ffn_up.weight": (inner, hidden),
        "blk.0.ffn_down.weight": (hidden, inner),
    }
    for name, shape in shapes.items():
        writer.add_tensor(name, random.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
