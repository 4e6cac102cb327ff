"""What the loader refuses, and the facts it tells of what it has loaded."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from models.errors import (
    CheckpointBrokenError,
    CheckpointError,
    NotACausalLMError,
    SettingError,
)
from tests.fakes import checkpoints, tokenizers
from workers.engine.checkpoint import cuda_device, place


class TestLoading:
    """What the loader refuses."""

    def test_a_classifier_is_no_causal_language_model(self, tmp_path: Path) -> None:
        folder = checkpoints.write_llama(tmp_path / "tiny")
        change_config(folder, architectures=["LlamaForSequenceClassification"])
        with pytest.raises(NotACausalLMError, match="LlamaForSequenceClassification, which is no causal"):
            checkpoints.load(folder)

    def test_an_encoder_decoder_is_none_either(self, tmp_path: Path) -> None:
        folder = checkpoints.write_llama(tmp_path / "tiny")
        (folder / "config.json").write_text(json.dumps({"model_type": "t5"}))
        with pytest.raises(NotACausalLMError, match="'t5'"):
            checkpoints.load(folder)

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"model_type": "unheard-of"}'])
    def test_a_config_that_cannot_be_read_is_named(self, tmp_path: Path, text: str) -> None:
        folder = checkpoints.write_llama(tmp_path / "tiny")
        (folder / "config.json").write_text(text)
        with pytest.raises(CheckpointBrokenError, match=r"config\.json"):
            checkpoints.load(folder)

    def test_weights_that_do_not_fill_the_network_are_refused(self, tmp_path: Path) -> None:
        folder = checkpoints.write_llama(tmp_path / "tiny")
        change_config(folder, num_hidden_layers=3)
        with pytest.raises(CheckpointBrokenError, match=r"do not fill the network.*layers\.2"):
            checkpoints.load(folder)

    def test_weights_of_another_shape_are_refused(self, tmp_path: Path) -> None:
        folder = checkpoints.write_llama(tmp_path / "tiny")
        change_config(folder, intermediate_size=64)
        with pytest.raises(CheckpointBrokenError, match=r"do not fill the network.*down_proj\.weight$"):
            checkpoints.load(folder)

    def test_a_broken_tokenizer_is_named(self, tmp_path: Path) -> None:
        folder = checkpoints.write_llama(tmp_path / "tiny")
        (folder / "tokenizer.json").write_text("{")
        with pytest.raises(CheckpointBrokenError, match="tokenizer"):
            checkpoints.load(folder)

    @pytest.mark.parametrize("write", [checkpoints.write_llama, checkpoints.write_gpt2])
    def test_a_folder_without_a_tokenizer_is_refused(self, tmp_path: Path, write: Callable[[Path], Path]) -> None:
        folder = write(tmp_path / "tiny")
        for file in folder.glob("tokenizer*"):
            file.unlink()
        with pytest.raises(CheckpointBrokenError, match="tokenizer"):
            checkpoints.load(folder)

    def test_a_refusal_is_one_sentence_on_one_line(self, tmp_path: Path) -> None:
        folder = checkpoints.write_llama(tmp_path / "tiny")
        change_config(folder, model_type="unheard-of")
        with pytest.raises(CheckpointBrokenError) as refused:
            checkpoints.load(folder)
        assert "\n" not in refused.value.message

    def test_code_that_came_with_a_checkpoint_is_never_run(self, tmp_path: Path) -> None:
        folder = checkpoints.write_llama(tmp_path / "tiny")
        (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
        change_config(folder, model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"})
        with pytest.raises(CheckpointBrokenError):
            checkpoints.load(folder)
        assert not (tmp_path / "ran").exists()

    def test_end_tokens_are_all_that_anything_names(self, tmp_path: Path) -> None:
        tokenizer = tokenizers.chatml()
        folder = checkpoints.write_llama(tmp_path / "tiny", tokenizer, eos_token_id=5)
        generation = json.loads((folder / "generation_config.json").read_text())
        (folder / "generation_config.json").write_text(json.dumps({**generation, "eos_token_id": [7, 9, 9999]}))
        info = checkpoints.load(folder).info
        assert info.end_token_ids == (5, 7, 9, tokenizer.eos_token_id)

    def test_the_facts_of_a_checkpoint(self, tmp_path: Path) -> None:
        info = checkpoints.load(checkpoints.write_gpt2(tmp_path / "tiny")).info
        assert (info.name, info.architecture, info.device, info.dtype) == ("tiny", "GPT2LMHeadModel", "cpu", "float32")
        assert (info.vocab_size, info.context_length) == (512, 128)
        assert (info.num_layers, info.num_kv_heads, info.head_size) == (2, 4, 12)
        assert info.kv_bytes(10) == 2 * 2 * 4 * 12 * 10 * 4
        assert (info.adds_bos, info.has_chat_template) == (False, False)
        llama = checkpoints.load(checkpoints.write_llama(tmp_path / "sp", tokenizers.metaspace())).info
        assert (llama.num_kv_heads, llama.head_size, llama.adds_bos, llama.bos_token_id) == (2, 12, True, 1)

    @pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory. Tried\nmore"), MemoryError()])
    def test_a_device_without_room_is_told_in_a_sentence(self, error: Exception) -> None:
        class Large:
            def to(self, device: str) -> None:
                raise error

        with pytest.raises(CheckpointError, match=r"^tiny cannot be put on cuda:0: \w+.*$"):
            place(Large(), "cuda:0", name="tiny")

    @pytest.mark.parametrize(("device", "expected"), [("cuda", "cuda:0"), ("cuda:0", "cuda:0"), ("cuda:1", "cuda:1")])
    def test_a_cuda_device_is_named_with_its_number(self, device: str, expected: str) -> None:
        assert cuda_device(device, num_devices=2) == expected

    @pytest.mark.parametrize(
        ("device", "num_devices", "words"),
        [("cuda:2", 2, "the last one is cuda:1"), ("cuda:7", 0, "sees no CUDA device"), ("cuda", 0, "sees no CUDA")],
    )
    def test_a_cuda_device_that_is_not_there_is_refused(self, device: str, num_devices: int, words: str) -> None:
        with pytest.raises(SettingError, match=words):
            cuda_device(device, num_devices=num_devices)

    @pytest.mark.parametrize(
        ("device", "dtype"),
        [
            ("tpu", "auto"),
            ("cudaX", "auto"),
            ("cuda:", "auto"),
            ("cuda:-1", "auto"),
            ("cuda:1:2", "auto"),
            ("cpu", "int4"),
        ],
    )
    def test_a_device_or_dtype_that_does_not_exist_is_refused(self, tmp_path: Path, device: str, dtype: str) -> None:
        folder = checkpoints.write_llama(tmp_path / "tiny")
        with pytest.raises(SettingError, match="is none of auto"):
            checkpoints.load(folder, device=device, dtype=dtype)


def change_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
