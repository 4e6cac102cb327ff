"""Memory that is freed goes back to the operating system."""

import platform

import psutil
import pytest
import torch

from workers.engine.free_memory import give_back

PIECE_BYTES = 64 * 1024
NUM_PIECES = 3000


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library has no malloc_trim")
def test_what_is_freed_between_pieces_that_stay_is_given_back() -> None:
    process = psutil.Process()
    pieces = [torch.zeros(PIECE_BYTES // 4) for _ in range(NUM_PIECES)]
    stay = pieces[::50]
    del pieces
    before = process.memory_info().rss
    give_back()
    given_back = before - process.memory_info().rss
    assert given_back > 0.7 * (NUM_PIECES - len(stay)) * PIECE_BYTES
