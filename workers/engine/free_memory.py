"""How much memory a device has left, and giving back what is not used any more."""

import ctypes
from collections.abc import Callable
from typing import Any, Final

import psutil
import torch


def free_bytes(device: str) -> int:
    """Bytes that can still be had on `device` ("cpu", "cuda:0") without taking them from anybody."""
    if torch.device(device).type == "cpu":
        return int(psutil.virtual_memory().available)
    free, _ = torch.cuda.mem_get_info(device)
    return int(free)


def _malloc_trim() -> Callable[[int], Any] | None:
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None  # not the GNU C library
    return found


_TRIM: Final = _malloc_trim()


def give_back() -> None:
    """Hand freed pages of the heap back to the operating system. Takes some milliseconds; other threads go on.

    Keys and values are kept in pieces of unlike size that live for unlike times; what is freed between two that stay is
    not given back by itself.
    """
    if _TRIM is not None:
        _TRIM(0)
