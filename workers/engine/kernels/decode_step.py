"""One step of a Llama-like network on a CPU over few new positions, of one or several sequences, compiled.

A row is one new position. A step of few rows does little more than read every weight once; the functions here read them
in one go, without a copy, a temporary or a call into Python between two layers. Every row's numbers are what they are
alone: sums have one order (`lanes`), and attention goes over fixed pieces of a cache.

Formulas: RMSNorm (Zhang and Sennrich 2019), rotary positions (Su et al. 2021), SwiGLU (Shazeer 2020).
"""

from typing import Any, Final

import numpy as np

from workers.engine.kernels.attention import PIECE, attend_pieces, join_pieces, tasks_of
from workers.engine.kernels.compiled import compiled
from workers.engine.kernels.exponential import exp
from workers.engine.kernels.lanes import dots, read, size_of, write
from workers.engine.kernels.projection import project

_ONE: Final = np.float32(1.0)

# Columns of the table of addresses, a row for each layer; 0 where there is no such tensor.
NORM, Q, K, V, Q_BIAS, K_BIAS, V_BIAS, Q_NORM, K_NORM, O, O_BIAS, NORM_2, GATE, UP, DOWN = range(15)  # noqa: E741
Q_SCALE, K_SCALE, V_SCALE, O_SCALE, GATE_SCALE, UP_SCALE, DOWN_SCALE = range(15, 22)
NUM_COLUMNS: Final = 22


@compiled
def normed(kind: Any, x: int, width: int, weight: int, eps: Any, out: int) -> None:
    """`out` = `x` over the root of its mean square, times `weight`; both of `width` float32. They may be the same."""
    square = np.empty(1, np.float32)
    dots(np.float32(0), 1, 1, x, width, x, width, width, square.ctypes.data, 1)
    scale = _ONE / np.sqrt(square[0] / np.float32(width) + eps)
    size = size_of(kind)
    one = np.float32(0)
    for i in range(width):
        write(one, out + i * 4, read(one, x + i * 4) * scale * read(kind, weight + i * size))


@compiled
def turned(x: int, cos: Any, sin: Any) -> None:
    """Rotary positions in place: the two halves of a head's first places are the parts of complex numbers."""
    one = np.float32(0)
    half = cos.shape[0] // 2
    for i in range(half):
        low, high = read(one, x + i * 4), read(one, x + (i + half) * 4)
        write(one, x + i * 4, low * cos[i] - high * sin[i])
        write(one, x + (i + half) * 4, high * cos[i + half] + low * sin[i + half])


@compiled
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


@compiled
def place_heads(kind: Any, states: Any, shape: Any, q_norm: int, k_norm: int, eps: Any, cos: Any, sin: Any) -> None:
    """Norms of heads, where there are any, and rotary positions, for the queries and keys of each row."""
    for row in range(len(states)):
        for head in range(shape.heads + shape.kv_heads):
            at = states.ctypes.data + (row * states.shape[1] + head * shape.head_size) * 4
            norm = q_norm if head < shape.heads else k_norm
            if norm:
                normed(kind, at, shape.head_size, norm, eps, at)
            turned(at, cos[row], sin[row])


@compiled
def step(
    kinds: Any, shape: Any, layers: Any, last_norm: int, head: Any, eps: Any, x: Any, cos: Any, sin: Any, places: Any,
    lengths: Any, bands: Any, wanted: Any, logits: Any
) -> None:  # fmt: skip
    """Logits (wanted, vocab) after the rows `wanted`; all rows' keys and values go into their caches.

    `kinds`: of the matrices, and of everything else that is kept. `layers` (layers, NUM_COLUMNS): addresses of
    weights, and of the scales of matrices that have some. `head` (2,): those of the last matrix. `x` (rows, width):
    embeddings, overwritten. `cos`, `sin` (rows, rotary size). `places` (layers, rows, 3): addresses of the row's keys
    and values, and how many positions there is room for. `lengths` (rows): positions with the new one. `bands`
    (bands, 2): first row and number of rows, at most BAND, whose positions follow each other in one cache.
    """
    matrix, kind = kinds
    num_rows = len(x)
    group = shape.heads // shape.kv_heads
    q_size, kv_size = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    tasks = tasks_of(bands, lengths, shape.kv_heads)
    parts = np.empty((len(tasks), bands[:, 1].max() * group, PIECE + shape.head_size + 2), np.float32)
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
        scales = layer[Q_SCALE : V_SCALE + 1]
        project(matrix, kind, hidden, layer[Q : V + 1], scales, layer[Q_BIAS : V_BIAS + 1], state_sizes, states)
        place_heads(kind, states, shape, layer[Q_NORM], layer[K_NORM], eps, cos, sin)
        keep(kind, states, shape, places[index], lengths)
        attend_pieces(kind, states, shape, places[index], lengths, tasks, parts)
        join_pieces(shape, lengths, tasks, parts, attended)
        scales = layer[O_SCALE : O_SCALE + 1]
        project(matrix, kind, attended, layer[O : O + 1], scales, layer[O_BIAS : O_BIAS + 1], one_size, hidden)
        for row in range(num_rows):
            x[row] += hidden[row]
            normed(kind, x[row].ctypes.data, shape.width, layer[NORM_2], eps, hidden[row].ctypes.data)
        project(matrix, kind, hidden, layer[GATE : UP + 1], layer[GATE_SCALE : UP_SCALE + 1], none, inner_sizes, inner)
        for row in range(num_rows):
            gated(inner[row], product[row])
        scales = layer[DOWN_SCALE : DOWN_SCALE + 1]
        project(matrix, kind, product, layer[DOWN : DOWN + 1], scales, none, one_size, hidden)
        for row in range(num_rows):
            x[row] += hidden[row]
    last = np.empty((len(wanted), shape.width), np.float32)
    for index in range(len(wanted)):
        normed(kind, x[wanted[index]].ctypes.data, shape.width, last_norm, eps, last[index].ctypes.data)
    project(matrix, kind, last, head[:1], head[1:], none, np.array([shape.vocab, 0, 0]), logits)


@compiled
def gated(inner: Any, out: Any) -> None:
    """`out` = SiLU of the first half of `inner`, times the second."""
    size = len(out)
    for i in range(size):
        gate = inner[i]
        out[i] = gate / (_ONE + exp(-gate)) * inner[size + i]
