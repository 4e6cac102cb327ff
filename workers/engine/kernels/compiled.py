"""How numba compiles functions here, and where it keeps what it has compiled."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numba
import torch
from numba import njit

_LOCK: Final = threading.Lock()


def is_for(tensor: torch.Tensor) -> bool:
    """Whether the kernels take what is in a tensor; what they do, torch does on an accelerator."""
    return tensor.device.type == "cpu"


@contextmanager
def threads_for(num_tasks: int) -> Iterator[None]:
    """For calls of `parallel` functions over so many tasks: they use as many threads as torch does, and wake no more.

    numba's own threads, where the machine has no OpenMP, serve one caller at a time.
    """
    with _LOCK:
        numba.set_num_threads(max(1, min(num_tasks, torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)))
        yield


def _cache_folder() -> Path | None:
    """A folder for each version of the kernels, as numba looks at one file alone to see whether what it has kept is out
    of date. None, and every process compiles for itself, where no home is writable."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in [here.parent / "noise.py", *sorted(here.glob("*.py"))]:
        digest.update(source.read_bytes())
    try:
        base = Path(numba.config.CACHE_DIR or Path.home() / ".cache" / "decodelab")
        folder = base / f"compiled-{digest.hexdigest()[:16]}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


_FOLDER: Final = _cache_folder()
numba.config.CACHE_DIR = "" if _FOLDER is None else str(_FOLDER)


def compiled(function: Callable[..., Any]) -> Any:
    """Every operation as it is written, in its order."""
    return njit(nogil=True, cache=_FOLDER is not None, error_model="numpy")(function)


def reordering(function: Callable[..., Any]) -> Any:
    """For sums whose order the compiler may choose: one for each number of terms."""
    return njit(nogil=True, cache=_FOLDER is not None, error_model="numpy", fastmath={"reassoc", "nsz"})(function)


def parallel(function: Callable[..., Any]) -> Any:
    """For loops over `prange`."""
    return njit(nogil=True, cache=_FOLDER is not None, error_model="numpy", parallel=True)(function)
