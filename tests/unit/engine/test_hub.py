"""Checkpoints of the hub, fetched by the real client from a hub on this machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import checkpoints
from tests.fakes.hub import COMMIT, running_hub
from workers.engine.catalog import Catalog


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = checkpoints.write_llama(tmp_path / "repository")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.safetensors").write_bytes(b"not wanted")
    (folder / "modeling_evil.py").write_text("raise SystemExit")
    (folder / "pytorch_model.bin").write_bytes(b"not wanted")
    return folder


def prepare(tmp_path: Path, endpoint: str, source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "workers.prepare"],
        env={
            "DECODELAB_DATA": str(tmp_path / "data"),
            "DECODELAB_CHECKPOINTS": f"tiny={source}",
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_XET": "1",
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_repository_is_fetched_once_and_then_works_without_the_hub(tmp_path: Path, repository: Path) -> None:
    with running_hub(repository) as endpoint:
        done = prepare(tmp_path, endpoint, "hub:org/tiny")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "data" / "checkpoints" / "tiny"
    names = {item.name for item in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not names & {"onnx", "modeling_evil.py", "pytorch_model.bin", ".cache"}
    assert json.loads((folder / "prepared.json").read_text())["revision"] == COMMIT

    again = prepare(tmp_path, "http://127.0.0.1:9", "hub:org/tiny")
    assert (again.returncode, "is ready" in again.stderr) == (0, True)
    entry = Catalog.parse("tiny=hub:org/tiny", tmp_path / "data").entry()
    info = checkpoints.load_entry(entry).info
    assert (info.source, info.revision) == ("hub:org/tiny", COMMIT)


def test_a_repository_that_does_not_exist_is_one_sentence(tmp_path: Path, repository: Path) -> None:
    with running_hub(repository) as endpoint:
        done = prepare(tmp_path, endpoint, "hub:org/other")
    assert done.returncode == 2
    assert "hub:org/other could not be downloaded" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "data" / "checkpoints").iterdir()) == [tmp_path / "data" / "checkpoints" / ".tiny.lock"]
