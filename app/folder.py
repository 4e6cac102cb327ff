"""The data folder: its parts, and the lock by which one launcher owns it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.errors import RefusedError, UnavailableError


def make_folders(data: Path) -> None:
    """The data folder and its parts. Raises UnavailableError naming the path that cannot be written."""
    try:
        for name in ("logs", "run", "valkey", "checkpoints"):
            (data / name).mkdir(parents=True, exist_ok=True)
        probe = data / "run" / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as exc:
        raise UnavailableError(
            f"The data folder {data} cannot be written ({exc.strerror}). Free space or change its rights, or set "
            "DECODELAB_DATA to another folder."
        ) from exc


def is_locked(data: Path) -> bool:
    """Whether a launcher owns the data folder: its lock goes with it, however it ends."""
    try:
        with (data / "run" / "up.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Own the data folder while in the block. Raises RefusedError naming the process that owns it already."""
    path = data / "run" / "up.lock"
    with path.open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            lock.seek(0)
            raise RefusedError(
                f"A stack runs on {data} already (process {lock.read().strip() or 'unknown'}). Use it, stop it "
                "with Ctrl-C or `kill`, or set DECODELAB_DATA to another folder."
            ) from exc
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
