"""The candidates of a token as columns: numbers as integers of variable length, texts apart, for a compressor.

A number has 6 decimals at its source, so it is a whole number of millionths: 3 or 4 bytes where its digits take 9.
Column after column, of all candidates: ids, raw log-probabilities (each as its difference to the one before, because
they are in order), processed ones (less the raw one, as differences too), penalties, noise, numbers of causes; then the
causes of each, as differences: as many of them as there are, at most 8.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from models.events import Candidate

_MILLION: Final = 1_000_000
_LARGEST: Final = 2**53 / _MILLION
_NUM_TOLD: Final = 8  # causes; part of the format, whatever the events may tell one day


class UnfitError(ValueError):
    """Candidates that do not go into columns: a number has more than 6 decimals, is -0.0, or beyond 2^53 millionths."""


def pack_candidates(candidates: Sequence[Candidate]) -> tuple[list[Any], bytes]:
    """Texts (pieces and stages) and numbers. Raises UnfitError."""
    if any(len(c.causes) != min(c.num_causes, _NUM_TOLD) for c in candidates):
        raise UnfitError("a candidate has other causes than the latest")
    raw = [_millionths(c.raw_logprob) for c in candidates]
    processed = [_millionths(c.logprob) for c in candidates]
    columns: list[Iterable[int | None]] = [
        (c.token_id for c in candidates),
        _differences(raw),
        _differences(_plus(processed, raw, sign=-1)),
        (_millionths(c.penalty) for c in candidates),
        (_millionths(c.noise) for c in candidates),
        (c.num_causes for c in candidates),
        *(_differences(c.causes) for c in candidates),
    ]
    texts = [[c.piece for c in candidates], [c.removed_by for c in candidates]]
    return texts, b"".join(_bytes_of(number) for column in columns for number in column)


def unpack_candidates(texts: Sequence[Any], data: bytes) -> tuple[Candidate, ...]:
    """The inverse of `pack_candidates`. Raises ValueError for what is none."""
    pieces, stages = texts
    numbers = iter(_numbers(data))

    def column(length: int) -> list[Any]:
        return list(islice(numbers, length))

    ids, raw, processed, penalties, noise, counts = (column(len(pieces)) for _ in range(6))
    raw = list(_sums(raw))
    processed = _plus(_sums(processed), raw)
    causes = [tuple(_sums(column(min(count, _NUM_TOLD)))) for count in counts]
    raw, processed, penalties, noise = map(_decimals, (raw, processed, penalties, noise))
    columns = zip(ids, pieces, raw, processed, stages, penalties, noise, counts, causes, strict=True)
    return tuple(Candidate(*values) for values in columns)


def _millionths(number: float | None) -> int | None:
    if number is None:
        return None
    found = round(number * _MILLION) if abs(number) < _LARGEST else 0
    if found / _MILLION != number or (not found and math.copysign(1, number) < 0):
        raise UnfitError(f"{number} is no whole number of millionths")
    return found


def _plus(numbers: Iterable[int | None], others: Iterable[int | None], *, sign: int = 1) -> list[int | None]:
    """Each number and its other, which is 0 where there is none."""
    return [None if n is None else n + sign * (other or 0) for n, other in zip(numbers, others, strict=True)]


def _differences(numbers: Iterable[int | None]) -> Iterator[int | None]:
    """Each number less the one before; None stays None."""
    before = 0
    for number in numbers:
        yield None if number is None else number - before
        before = before if number is None else number


def _bytes_of(number: int | None) -> bytes:
    """0 for None, 1, 3, 5 for 0, 1, 2 and 2, 4, 6 for -1, -2, -3: 7 bits a byte, the lowest first."""
    rest = 0 if number is None else 1 + (2 * number if number >= 0 else -2 * number - 1)
    found = bytearray()
    while rest > 127:
        found.append(128 | rest & 127)
        rest >>= 7
    return bytes([*found, rest])


def _numbers(data: bytes) -> Iterator[int | None]:
    """The inverse of `_bytes_of`, joined."""
    number = shift = 0
    for byte in data:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield None if not number else number // 2 if number % 2 else -(number // 2)
            number = shift = 0


def _sums(differences: Iterable[int | None]) -> Iterator[int | None]:
    before = 0
    for difference in differences:
        before += difference or 0
        yield None if difference is None else before


def _decimals(numbers: Iterable[int | None]) -> list[float | None]:
    return [None if number is None else number / _MILLION for number in numbers]
