"""Attention of new positions, compiled: queries of grouped heads, each over the cache of its own sequence.

A row is one new position. Rows that follow each other in one sequence form bands, so that keys are read once for all of
a band. A task is what one thread does at a time: a head of a band, over one piece of its positions. The pieces of a
cache are the same whatever other rows there are, and so is what a row computes over each: its numbers are those that it
has alone.

Formulas: grouped queries (Ainslie et al. 2023), pieces of a softmax joined by their maxima (Milakov and Gimelshein
2018).
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numba import prange

from workers.engine.kernels.compiled import compiled, parallel, reordering
from workers.engine.kernels.exponential import exp
from workers.engine.kernels.lanes import LANES, mix, read, size_of
from workers.engine.kernels.projection import columns
from workers.engine.kernels.weighing import largest_of

PIECE: Final = 256
"""Positions of a cache that one task attends to."""

BAND: Final = 8
"""Most rows of a band."""


class Shape(NamedTuple):
    """Sizes of a network."""

    width: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int  # of the feed-forward part
    vocab: int


@compiled
def tasks_of(bands: Any, lengths: Any, num_heads: int) -> Any:
    """(tasks, 4): first row and number of rows of a band, kv head, piece; the pieces of a head one after the other.

    `bands` (bands, 2): first row and number of rows. `lengths` (rows): positions that a row attends to, its own with
    them; in a band they ascend.
    """
    total = 0
    for band in bands:
        total += num_heads * num_pieces(lengths[band[0] + band[1] - 1])
    tasks = np.empty((total, 4), np.int64)
    task = 0
    for band in bands:
        for head in range(num_heads):
            for piece in range(num_pieces(lengths[band[0] + band[1] - 1])):
                tasks[task, :2] = band
                tasks[task, 2] = head
                tasks[task, 3] = piece
                task += 1
    return tasks


@compiled
def num_pieces(length: int) -> Any:
    """Of a cache."""
    return (length + PIECE - 1) // PIECE


@reordering
def sum_of(values: Any) -> Any:
    """The sum, in an order that depends on how many there are alone."""
    total = np.float32(0)
    for i in range(values.size):
        total += values[i]
    return total


@compiled
def score_piece(kind: Any, queries: int, group: int, head_size: int, keys: int, num: int, part: Any) -> None:
    """`part` (group, at least num): the scalar products of `group` queries with `num` keys."""
    position = 0
    while position < num:
        number = min(4, num - position)
        at = keys + position * head_size * size_of(kind)
        columns(kind, number, queries, group, at, head_size, part.ctypes.data + position * 4, part.shape[1])
        position += number


@compiled
def mix_values(kind: Any, part: Any, queries: Any, num: int, values: int, head_size: int) -> None:
    """For each of the `queries` (first, one behind the last) of a part the sum of `num` values, a share of each."""
    query, end = queries
    while query + 4 <= end:
        mix_blocks(kind, 4, part[query:], num, values, head_size)
        query += 4
    while query < end:
        mix_blocks(kind, 1, part[query:], num, values, head_size)
        query += 1


@compiled
def mix_blocks(kind: Any, num_queries: int, part: Any, num: int, values: int, head_size: int) -> None:
    """`mix_values` for the first 4 queries of a part, or the first one."""
    size = size_of(kind)
    shares, stride = part.ctypes.data, part.shape[1]
    out = shares + PIECE * 4
    place = 0
    while place + 4 * LANES <= head_size:
        at, to = values + place * size, out + place * 4
        if num_queries == 4:
            mix(kind, 4, 4, shares, stride, at, head_size, num, to, stride)
        else:
            mix(kind, 1, 4, shares, stride, at, head_size, num, to, stride)
        place += 4 * LANES
    while place + LANES <= head_size:
        at, to = values + place * size, out + place * 4
        if num_queries == 4:
            mix(kind, 4, 1, shares, stride, at, head_size, num, to, stride)
        else:
            mix(kind, 1, 1, shares, stride, at, head_size, num, to, stride)
        place += LANES
    for query in range(num_queries):
        for i in range(place, head_size):
            mixed = np.float32(0)
            for n in range(num):
                mixed += part[query, n] * read(kind, values + (n * head_size + i) * size)
            part[query, PIECE + i] = mixed


@parallel
def attend_pieces(kind: Any, states: Any, shape: Any, places: Any, lengths: Any, tasks: Any, parts: Any) -> None:
    """All tasks of a layer. `states` (rows, ...) begin with queries. `places` (rows, 3): addresses of keys and values,
    room.

    `parts` (tasks, rows of a band x group, PIECE + head size + 2): for each query of a task the shares of its
    positions, the sum of values that is not yet divided, the largest score, and the sum of the shares.
    """
    group = shape.heads // shape.kv_heads
    head_size = shape.head_size
    scale = np.float32(1.0 / np.sqrt(head_size))
    size = size_of(kind)
    for task in prange(len(tasks)):
        first, num_rows, head, piece = tasks[task]
        start = piece * PIECE
        offset = (head * places[first, 2] + start) * head_size * size
        queries = np.empty((num_rows * group, head_size), np.float32)
        for row in range(num_rows):
            for g in range(group):
                place = (head * group + g) * head_size
                queries[row * group + g] = states[first + row, place : place + head_size]
        part = parts[task]
        most = min(PIECE, lengths[first + num_rows - 1] - start)
        score_piece(kind, queries.ctypes.data, num_rows * group, head_size, places[first, 0] + offset, most, part)
        visible = np.minimum(PIECE, lengths[first : first + num_rows] - start)
        for query in range(num_rows * group):
            if visible[query // group] > 0:
                share_out(part[query], visible[query // group], head_size, scale)
        mix_rows(kind, part, group, visible, places[first, 1] + offset, head_size)


@compiled
def mix_rows(kind: Any, part: Any, group: int, visible: Any, values: int, head_size: int) -> None:
    """`mix_values` for rows of `group` queries; `visible`: how many positions of the piece each row sees. All rows from
    the first one that sees the whole piece on do, and are mixed together."""
    row = 0
    while row < len(visible) and visible[row] < PIECE:
        if visible[row] > 0:
            mix_values(kind, part, (row * group, (row + 1) * group), visible[row], values, head_size)
        row += 1
    mix_values(kind, part, (row * group, len(visible) * group), PIECE, values, head_size)


@compiled
def share_out(query: Any, num: int, head_size: int, scale: Any) -> None:
    """Turn the first `num` scores of a query into shares, and write down the largest score and the shares' sum."""
    shares = query[:num]
    largest = largest_of(shares)
    for i in range(num):
        shares[i] = exp((shares[i] - largest) * scale)
    query[PIECE + head_size] = largest
    query[PIECE + head_size + 1] = sum_of(shares)


@compiled
def join_pieces(shape: Any, lengths: Any, tasks: Any, parts: Any, out: Any) -> None:
    """`out` (rows, heads x head size) from the parts of all tasks; the pieces of a head follow each other."""
    first = 0
    while first < len(tasks):
        end = first + 1
        while end < len(tasks) and tasks[end, 3] > 0:
            end += 1
        for row in range(tasks[first, 1]):
            place = tasks[first, 0] + row
            join_row(shape, row, tasks[first, 2], parts[first : first + num_pieces(lengths[place])], out[place])
        first = end


@compiled
def join_row(shape: Any, row: int, head: int, parts: Any, out: Any) -> None:
    """The queries of one row of a band, from the parts of its pieces."""
    group = shape.heads // shape.kv_heads
    head_size = shape.head_size
    scale = np.float32(1.0 / np.sqrt(head_size))
    for g in range(group):
        query = row * group + g
        largest = parts[0, query, PIECE + head_size]
        for piece in range(1, len(parts)):
            largest = max(largest, parts[piece, query, PIECE + head_size])
        joined = out[(head * group + g) * head_size : (head * group + g + 1) * head_size]
        joined[:] = 0
        total = np.float32(0)
        for piece in range(len(parts)):
            share = exp((parts[piece, query, PIECE + head_size] - largest) * scale)
            total += share * parts[piece, query, PIECE + head_size + 1]
            for i in range(head_size):
                joined[i] += share * parts[piece, query, PIECE + i]
        for i in range(head_size):
            joined[i] /= total
