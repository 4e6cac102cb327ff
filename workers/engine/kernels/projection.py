"""Products of a few rows with weight matrices, compiled: every weight is read once, for all rows."""

from typing import Any

import numpy as np
from numba import prange

from workers.engine.kernels.compiled import compiled, parallel
from workers.engine.kernels.lanes import dots, read, size_of


@compiled
def columns(kind: Any, number: int, x: int, num_rows: int, w: int, width: int, out: int, out_stride: int) -> None:
    """The scalar products of all rows of `x` with `number` (at most 4) rows of `w`."""
    row = 0
    if number == 4:
        while row + 4 <= num_rows:
            dots(kind, 4, 4, x + row * width * 4, width, w, width, width, out + row * out_stride * 4, out_stride)
            row += 4
        if row + 2 <= num_rows:
            dots(kind, 2, 4, x + row * width * 4, width, w, width, width, out + row * out_stride * 4, out_stride)
            row += 2
        if row < num_rows:
            dots(kind, 1, 4, x + row * width * 4, width, w, width, width, out + row * out_stride * 4, out_stride)
        return
    size = size_of(kind)
    for column in range(number):
        for single in range(num_rows):
            at = w + column * width * size
            to = out + (single * out_stride + column) * 4
            dots(kind, 1, 1, x + single * width * 4, width, at, width, width, to, out_stride)


@parallel
def project(
    kind: Any, bias_kind: Any, x: Any, weights: Any, scales: Any, biases: Any, sizes: Any, out: Any
) -> None:  # fmt: skip
    """`out` (rows, sum of sizes): `x` (rows, width) times each of up to three matrices (size, width), side by side.

    Where a matrix has an address in `scales`, its rows are multiplied by the float32 numbers there.
    """
    num_rows, width = x.shape
    size = size_of(kind)
    x_at, out_at, out_stride = x.ctypes.data, out.ctypes.data, out.shape[1]
    first = (sizes[0] + 3) // 4
    second = first + (sizes[1] + 3) // 4
    total = second + (sizes[2] + 3) // 4
    for block in prange(total):
        which = 0 if block < first else (1 if block < second else 2)
        start = 4 * (block - (0 if which == 0 else (first if which == 1 else second)))
        place = start + (0 if which == 0 else (sizes[0] if which == 1 else sizes[0] + sizes[1]))
        number = min(4, sizes[which] - start)
        w = weights[which] + start * width * size
        columns(kind, number, x_at, num_rows, w, width, out_at + place * 4, out_stride)
        if scales[which]:
            for column in range(number):
                scale = read(np.float32(0), scales[which] + (start + column) * 4)
                for row in range(num_rows):
                    out[row, place + column] *= scale
        if biases[which]:
            for column in range(number):
                bias = read(bias_kind, biases[which] + (start + column) * size_of(bias_kind))
                for row in range(num_rows):
                    out[row, place + column] += bias
