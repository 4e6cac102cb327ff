"""A tiny checkpoint of each family of architectures that docs/families.md names: random weights, real configs.

Windows and chunks are a few positions long, so that short prompts cross them. Embeddings are not tied where tying would
make such a network repeat its last token for ever.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import transformers
from transformers import AutoModelForCausalLM

from tests.fakes import checkpoints, tokenizers
from tests.fakes.checkpoints import CONTEXT_LENGTH, VOCAB_SIZE
from workers.engine.checkpoint import Checkpoint

WINDOW: Final = 8
_STATE: Final = {"mamba_n_heads": 6, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 2, "mamba_chunk_size": 8}
_PURE: Final = {"hidden_size": 48, "num_hidden_layers": 2, "initializer_range": 0.35, "tie_word_embeddings": False}


@dataclass(frozen=True)
class Family:
    """A config class of transformers with its values, and what the loader should find out about it."""

    config: str
    values: dict[str, Any] = field(default_factory=dict)
    runs_alone: bool = False
    prefills_whole: bool = False
    is_fused: bool = False

    def write(self, folder: Path) -> Path:
        """Save the checkpoint with its tokenizer."""
        tokenizer = tokenizers.words()
        ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": None}
        config = getattr(transformers, self.config)(**{"vocab_size": VOCAB_SIZE, **ids, **self.values})
        return checkpoints.write(folder, lambda: AutoModelForCausalLM.from_config(config), tokenizer)

    def load(self, folder: Path) -> Checkpoint:
        """Save it, and load it as any other checkpoint."""
        return checkpoints.load(self.write(folder))


def _sized(**changes: Any) -> dict[str, Any]:
    """The names that most configs share."""
    return {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": CONTEXT_LENGTH,
        "initializer_range": 0.35,
        "tie_word_embeddings": False,
        **changes,
    }


FAMILIES: Final[dict[str, Family]] = {
    "llama": Family("LlamaConfig", _sized(num_key_value_heads=2), is_fused=True),
    "qwen2": Family("Qwen2Config", _sized(num_key_value_heads=2), is_fused=True),
    "qwen3": Family("Qwen3Config", _sized(num_key_value_heads=2, head_dim=16), is_fused=True),
    "mistral": Family("MistralConfig", _sized(num_key_value_heads=2, sliding_window=WINDOW)),
    "gemma2": Family(
        "Gemma2Config",
        _sized(
            num_key_value_heads=2,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=WINDOW,
            attn_logit_softcapping=5.0,
            final_logit_softcapping=6.0,
        ),
    ),
    "gemma3": Family(
        "Gemma3TextConfig",
        _sized(
            num_key_value_heads=2,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=WINDOW,
            num_hidden_layers=3,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        ),
    ),
    "phi": Family("PhiConfig", _sized()),
    "phi3": Family("Phi3Config", _sized(num_key_value_heads=2, sliding_window=WINDOW)),
    "gpt2": Family(
        "GPT2Config",
        {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT_LENGTH, "initializer_range": 0.35},
    ),
    "gpt_neox": Family("GPTNeoXConfig", _sized(rotary_pct=0.5)),
    "opt": Family("OPTConfig", _sized(ffn_dim=96, word_embed_proj_dim=32, init_std=0.35)),
    "falcon": Family("FalconConfig", _sized(multi_query=True, parallel_attn=True), runs_alone=True),
    "falcon_alibi": Family("FalconConfig", _sized(multi_query=False, parallel_attn=False, alibi=True), runs_alone=True),
    "bloom": Family(
        "BloomConfig",
        {"hidden_size": 48, "n_layer": 2, "n_head": 4, "initializer_range": 0.35, "tie_word_embeddings": False},
        runs_alone=True,
    ),
    "mamba": Family("MambaConfig", {**_PURE, "state_size": 8}, runs_alone=True, prefills_whole=True),
    "mamba2": Family(
        "Mamba2Config",
        {**_PURE, "state_size": 8, "num_heads": 6, "head_dim": 16, "n_groups": 2, "chunk_size": 8},
        runs_alone=True,
    ),
    "jamba": Family(
        "JambaConfig",
        _sized(
            num_key_value_heads=2,
            num_hidden_layers=4,
            attn_layer_period=2,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
            num_experts=2,
            mamba_d_state=8,
            mamba_dt_rank=4,
            initializer_range=0.2,
        ),
        runs_alone=True,
        prefills_whole=True,
    ),
    "falcon_h1": Family("FalconH1Config", _sized(num_key_value_heads=2, mamba_d_ssm=96, **_STATE), runs_alone=True),
    "lfm2": Family(
        "Lfm2Config",
        _sized(num_key_value_heads=2, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False),
        runs_alone=True,
    ),
    "qwen3_next": Family(
        "Qwen3NextConfig",
        _sized(
            num_key_value_heads=2,
            head_dim=16,
            layer_types=["linear_attention", "full_attention"],
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            num_experts=2,
            num_experts_per_tok=1,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
            initializer_range=0.2,
        ),
        runs_alone=True,
    ),
}
