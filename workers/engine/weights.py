"""The weight files of a checkpoint folder: which they are, whether they are whole, and their digest."""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Final

from safetensors import SafetensorError, safe_open

from models.errors import CheckpointBrokenError, CheckpointMissingError

DIGEST_FILE: Final = "weights.sha256.json"
_INDEX: Final = "model.safetensors.index.json"
_SINGLE: Final = "model.safetensors"


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of `folder`, sorted by name, each with a whole header and as long as that says.

    Raises CheckpointMissingError where the folder or one of its files is absent, CheckpointBrokenError where a file
    is cut off or not what its name says.
    """
    if not folder.is_dir():
        raise CheckpointMissingError(f"checkpoint folder {folder} does not exist")
    if not (folder / "config.json").is_file():
        raise CheckpointMissingError(_no_config(folder))
    names = _indexed_names(folder / _INDEX) if (folder / _INDEX).is_file() else [_SINGLE]
    files = tuple(folder / name for name in names)
    for file in files:
        if not file.is_file():
            raise CheckpointMissingError(f"{file} is missing; a checkpoint needs its weights as safetensors files")
        _check_whole(file)
    return files


def weights_digest(folder: Path) -> str:
    """SHA-256 over the weight files in the order of their names, hex.

    Kept in a file beside the weights with their sizes and times, so that half a gigabyte is not read at every start.
    """
    files = weight_files(folder)
    state = {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in files}
    kept = _read_kept(folder / DIGEST_FILE)
    if kept.get("files") == state:
        return str(kept["sha256"])
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
    # A folder that may only be read still works: its digest is computed at every start.
    with contextlib.suppress(OSError):
        (folder / DIGEST_FILE).write_text(json.dumps({"files": state, "sha256": digest.hexdigest()}))
    return digest.hexdigest()


def _no_config(folder: Path) -> str:
    message = f"{folder} is no checkpoint folder: it holds no config.json"
    gguf = sorted(folder.glob("*.gguf"))
    return f"{message}. To serve a GGUF file, name the file itself, such as {gguf[0]}" if gguf else message


def _indexed_names(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as exc:
        raise CheckpointBrokenError(f"{index} does not name the weight files: {exc!r}") from exc
    if not names or any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise CheckpointBrokenError(f"{index} names weight files outside its folder")
    return names


def _check_whole(file: Path) -> None:
    try:
        with safe_open(file, framework="np") as tensors:
            tensors.keys()
    except (SafetensorError, OSError, ValueError) as exc:
        raise CheckpointBrokenError(
            f"{file} is broken or cut off ({exc}); remove it and fetch the checkpoint again"
        ) from exc


def _read_kept(file: Path) -> dict[str, object]:
    try:
        values = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
