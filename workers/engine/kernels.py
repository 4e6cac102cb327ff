"""One decode step of a Llama-like network on a CPU: one new position for each of several rows, compiled.

A step of a small number of rows does little more than read every weight once; the functions here read them in one go,
without a copy, a temporary or a call into Python between two layers. Every row's numbers are what they are alone: sums
have one order (`lanes`), and attention goes over fixed pieces of a cache.

Formulas: RMSNorm (Zhang and Sennrich 2019), rotary positions (Su et al. 2021), SwiGLU (Shazeer 2020), grouped queries
(Ainslie et al. 2023), pieces of a softmax joined by their maxima (Milakov and Gimelshein 2018).
"""

import hashlib
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numba import njit, prange

from workers.engine import lanes
from workers.engine.lanes import LANES, dots, mix, of_bits, read, size_of, write

PIECE: Final = 256
"""Positions of a cache that one task attends to."""

_LOG2_E: Final = np.float32(1.44269504088896341)
_LN2_HIGH: Final = np.float32(0.693359375)
_LN2_LOW: Final = np.float32(-2.12194440e-4)
_LOWEST: Final = np.float32(-87.0)
_HIGHEST: Final = np.float32(88.0)
_HALF: Final = np.float32(0.5)
_ONE: Final = np.float32(1.0)
_C0: Final = np.float32(1.9875691500e-4)
_C1: Final = np.float32(1.3981999507e-3)
_C2: Final = np.float32(8.3334519073e-3)
_C3: Final = np.float32(4.1665795894e-2)
_C4: Final = np.float32(1.6666665459e-1)
_C5: Final = np.float32(5.0000001201e-1)

# Columns of the table of addresses, a row for each layer; 0 where there is no such tensor.
NORM, Q, K, V, Q_BIAS, K_BIAS, V_BIAS, Q_NORM, K_NORM, O, O_BIAS, NORM_2, GATE, UP, DOWN = range(15)  # noqa: E741
NUM_COLUMNS: Final = 15


class Shape(NamedTuple):
    """Sizes of a network."""

    width: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int  # of the feed-forward part
    vocab: int


def set_threads(number: int) -> None:
    """How many threads the kernels use from now on, when called by this thread."""
    numba.set_num_threads(min(number, numba.config.NUMBA_NUM_THREADS))


def _cache_folder() -> Path | None:
    """Where compiled kernels are kept: a folder for each version of them, as numba looks at one file alone to see
    whether what it has kept is out of date. None, and every process compiles for itself, where no home is writable."""
    texts = [Path(source).read_bytes() for source in (__file__, lanes.__file__)]
    name = f"kernels-{hashlib.sha256(b''.join(texts)).hexdigest()[:16]}"
    try:
        base = Path(numba.config.CACHE_DIR or Path.home() / ".cache" / "decodelab")
        folder = base / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None


_FOLDER: Final = _cache_folder()
numba.config.CACHE_DIR = "" if _FOLDER is None else str(_FOLDER)


def _compiled(function: Any, **options: Any) -> Any:
    return njit(nogil=True, cache=_FOLDER is not None, error_model="numpy", **options)(function)


def _here(function: Any) -> Any:
    return _compiled(function)


def _reordering(function: Any) -> Any:
    """For sums whose order the compiler may choose."""
    return _compiled(function, fastmath=True)


def _parallel(function: Any) -> Any:
    return _compiled(function, parallel=True)


@_here
def exp(x: Any) -> Any:
    """e^x in float32, within 2 units in the last place from -87 up to 88; beyond, that of the nearest of the two."""
    x = min(max(x, _LOWEST), _HIGHEST)
    power = np.floor(x * _LOG2_E + _HALF)
    rest = x - power * _LN2_HIGH - power * _LN2_LOW
    series = ((((_C0 * rest + _C1) * rest + _C2) * rest + _C3) * rest + _C4) * rest + _C5
    return (series * rest * rest + rest + _ONE) * of_bits((np.int32(power) + np.int32(127)) << np.int32(23))


@_here
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


@_parallel
def project(kind: Any, x: Any, weights: Any, biases: Any, sizes: Any, out: Any) -> None:
    """`out` (rows, sum of sizes): `x` (rows, width) times each of up to three matrices (size, width), side by side."""
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
        if biases[which]:
            for column in range(number):
                bias = read(kind, biases[which] + (start + column) * size)
                for row in range(num_rows):
                    out[row, place + column] += bias


@_here
def normed(kind: Any, x: int, width: int, weight: int, eps: Any, out: int) -> None:
    """`out` = `x` over the root of its mean square, times `weight`; both of `width` float32. They may be the same."""
    square = np.empty(1, np.float32)
    dots(np.float32(0), 1, 1, x, width, x, width, width, square.ctypes.data, 1)
    scale = _ONE / np.sqrt(square[0] / np.float32(width) + eps)
    size = size_of(kind)
    one = np.float32(0)
    for i in range(width):
        write(one, out + i * 4, read(one, x + i * 4) * scale * read(kind, weight + i * size))


@_here
def turned(x: int, cos: Any, sin: Any) -> None:
    """Rotary positions in place: the two halves of a head's first places are the parts of complex numbers."""
    one = np.float32(0)
    half = cos.shape[0] // 2
    for i in range(half):
        low, high = read(one, x + i * 4), read(one, x + (i + half) * 4)
        write(one, x + i * 4, low * cos[i] - high * sin[i])
        write(one, x + (i + half) * 4, high * cos[i + half] + low * sin[i + half])


@_reordering
def largest_of(values: Any) -> Any:
    """The largest of at least one number."""
    largest = values[0]
    for value in values:
        largest = max(largest, value)
    return largest


@_reordering
def sum_of(values: Any) -> Any:
    """The sum, in an order that depends on how many there are alone."""
    total = np.float32(0)
    for value in values:
        total += value
    return total


@_here
def score_piece(kind: Any, queries: int, group: int, head_size: int, keys: int, num: int, part: Any) -> None:
    """`part` (group, at least num): the scalar products of `group` queries with `num` keys."""
    position = 0
    while position < num:
        number = min(4, num - position)
        at = keys + position * head_size * size_of(kind)
        columns(kind, number, queries, group, at, head_size, part.ctypes.data + position * 4, part.shape[1])
        position += number


@_here
def mix_values(kind: Any, shares: Any, values: int, head_size: int, out: Any) -> None:
    """`out` (head size): the sum of values, a share of each."""
    size = size_of(kind)
    num, at, to = len(shares), shares.ctypes.data, out.ctypes.data
    place = 0
    while place + 4 * LANES <= head_size:
        mix(kind, 1, 4, at, 0, values + place * size, head_size, num, to + place * 4, 0)
        place += 4 * LANES
    while place + LANES <= head_size:
        mix(kind, 1, 1, at, 0, values + place * size, head_size, num, to + place * 4, 0)
        place += LANES
    for i in range(place, head_size):
        mixed = np.float32(0)
        for n in range(num):
            mixed += shares[n] * read(kind, values + (n * head_size + i) * size)
        out[i] = mixed


@_parallel
def attend_pieces(kind: Any, queries: Any, shape: Any, places: Any, lengths: Any, tasks: Any, parts: Any) -> None:
    """All tasks (row, kv head, piece) of a layer. `places` (rows, 3): addresses of keys and values, room.

    `parts` (tasks, group, PIECE + head size + 2): for each query of a task the shares of its positions, the sum of
    values that is not yet divided, the largest score, and the sum of the shares.
    """
    group = shape.heads // shape.kv_heads
    head_size = shape.head_size
    scale = np.float32(1.0 / np.sqrt(head_size))
    size = size_of(kind)
    queries_at = queries.ctypes.data
    for task in prange(len(tasks)):
        row, head, piece = tasks[task]
        start = piece * PIECE
        offset = (head * places[row, 2] + start) * head_size * size
        query = queries_at + (row * queries.shape[1] + head * group * head_size) * 4
        num = min(PIECE, lengths[row] - start)
        part = parts[task]
        score_piece(kind, query, group, head_size, places[row, 0] + offset, num, part)
        for g in range(group):
            shares = part[g, :num]
            largest = largest_of(shares)
            for i in range(num):
                shares[i] = exp((shares[i] - largest) * scale)
            part[g, PIECE + head_size] = largest
            part[g, PIECE + head_size + 1] = sum_of(shares)
            mix_values(kind, shares, places[row, 1] + offset, head_size, part[g, PIECE : PIECE + head_size])


@_here
def join_pieces(shape: Any, tasks: Any, parts: Any, out: Any) -> None:
    """`out` (rows, heads x head size) from the parts of all tasks; the pieces of a head follow each other."""
    group = shape.heads // shape.kv_heads
    head_size = shape.head_size
    scale = np.float32(1.0 / np.sqrt(head_size))
    first = 0
    while first < len(tasks):
        row, head = tasks[first, 0], tasks[first, 1]
        end = first + 1
        while end < len(tasks) and tasks[end, 2] > 0:
            end += 1
        for g in range(group):
            largest = parts[first, g, PIECE + head_size]
            for task in range(first + 1, end):
                largest = max(largest, parts[task, g, PIECE + head_size])
            joined = out[row, (head * group + g) * head_size : (head * group + g + 1) * head_size]
            joined[:] = 0
            total = np.float32(0)
            for task in range(first, end):
                share = exp((parts[task, g, PIECE + head_size] - largest) * scale)
                total += share * parts[task, g, PIECE + head_size + 1]
                for i in range(head_size):
                    joined[i] += share * parts[task, g, PIECE + i]
            for i in range(head_size):
                joined[i] /= total
        first = end


@_here
def keep(kind: Any, states: Any, shape: Any, places: Any, lengths: Any) -> None:
    """Write each row's new keys and values, behind its queries in `states`, into its cache."""
    size = size_of(kind)
    q_size, kv_size = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    for row in range(len(states)):
        for head in range(shape.kv_heads):
            offset = (head * places[row, 2] + lengths[row] - 1) * shape.head_size * size
            for i in range(shape.head_size):
                place = q_size + head * shape.head_size + i
                write(kind, places[row, 0] + offset + i * size, states[row, place])
                write(kind, places[row, 1] + offset + i * size, states[row, place + kv_size])


@_here
def place_heads(kind: Any, states: Any, shape: Any, q_norm: int, k_norm: int, eps: Any, cos: Any, sin: Any) -> None:
    """Norms of heads, where there are any, and rotary positions, for the queries and keys of each row."""
    for row in range(len(states)):
        for head in range(shape.heads + shape.kv_heads):
            at = states.ctypes.data + (row * states.shape[1] + head * shape.head_size) * 4
            norm = q_norm if head < shape.heads else k_norm
            if norm:
                normed(kind, at, shape.head_size, norm, eps, at)
            turned(at, cos[row], sin[row])


@_here
def step(
    kind: Any, shape: Any, layers: Any, last_norm: int, head: int, eps: Any, x: Any, cos: Any, sin: Any, places: Any,
    lengths: Any, logits: Any
) -> None:  # fmt: skip
    """Logits (rows, vocab) after one more position of each row, whose keys and values go into its cache.

    `layers` (layers, NUM_COLUMNS): addresses of weights. `x` (rows, width): embeddings, overwritten. `cos`, `sin`
    (rows, rotary size). `places` (layers, rows, 3): addresses of the row's keys and values, and how many positions
    there is room for. `lengths` (rows): positions with the new one.
    """
    num_rows = len(x)
    group = shape.heads // shape.kv_heads
    q_size, kv_size = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    tasks = tasks_of(lengths, shape.kv_heads)
    parts = np.empty((len(tasks), group, PIECE + shape.head_size + 2), np.float32)
    hidden = np.empty((num_rows, shape.width), np.float32)
    states = np.empty((num_rows, q_size + 2 * kv_size), np.float32)
    attended = np.empty((num_rows, q_size), np.float32)
    inner = np.empty((num_rows, 2 * shape.inner), np.float32)
    product = np.empty((num_rows, shape.inner), np.float32)
    none = np.zeros(3, np.int64)
    state_sizes = np.array([q_size, kv_size, kv_size])
    one_size = np.array([shape.width, 0, 0])
    inner_sizes = np.array([shape.inner, shape.inner, 0])
    for index in range(len(layers)):
        layer = layers[index]
        for row in range(num_rows):
            normed(kind, x[row].ctypes.data, shape.width, layer[NORM], eps, hidden[row].ctypes.data)
        project(kind, hidden, layer[Q : V + 1], layer[Q_BIAS : V_BIAS + 1], state_sizes, states)
        place_heads(kind, states, shape, layer[Q_NORM], layer[K_NORM], eps, cos, sin)
        keep(kind, states, shape, places[index], lengths)
        attend_pieces(kind, states, shape, places[index], lengths, tasks, parts)
        join_pieces(shape, tasks, parts, attended)
        project(kind, attended, layer[O : O + 1], layer[O_BIAS : O_BIAS + 1], one_size, hidden)
        for row in range(num_rows):
            x[row] += hidden[row]
            normed(kind, x[row].ctypes.data, shape.width, layer[NORM_2], eps, hidden[row].ctypes.data)
        project(kind, hidden, layer[GATE : UP + 1], none, inner_sizes, inner)
        for row in range(num_rows):
            gated(inner[row], product[row])
        project(kind, product, layer[DOWN : DOWN + 1], none, one_size, hidden)
        for row in range(num_rows):
            x[row] += hidden[row]
    for row in range(num_rows):
        normed(kind, x[row].ctypes.data, shape.width, last_norm, eps, hidden[row].ctypes.data)
    project(kind, hidden, np.array([head]), none, np.array([shape.vocab, 0, 0]), logits)


@_here
def gated(inner: Any, out: Any) -> None:
    """`out` = SiLU of the first half of `inner`, times the second."""
    size = len(out)
    for i in range(size):
        gate = inner[i]
        out[i] = gate / (_ONE + exp(-gate)) * inner[size + i]


@_here
def tasks_of(lengths: Any, num_heads: int) -> Any:
    """(tasks, 3): row, kv head and piece, the pieces of a head one after the other."""
    total = 0
    for length in lengths:
        total += num_heads * ((length + PIECE - 1) // PIECE)
    tasks = np.empty((total, 3), np.int64)
    task = 0
    for row in range(len(lengths)):
        for head in range(num_heads):
            for piece in range((lengths[row] + PIECE - 1) // PIECE):
                tasks[task, 0] = row
                tasks[task, 1] = head
                tasks[task, 2] = piece
                task += 1
    return tasks
