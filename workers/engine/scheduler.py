"""Which sequences run in the next step, and over how many positions: plain Python over ids and lengths.

Every running sequence decodes at every step. What the step has left of its budget goes to prompts, in the order in
which they were let in. The budget is the longest that those who run have to wait for their next token, so it is small
while somebody runs and large while nobody does.

A sequence that waits is let in where a row is free: first come, first served, but a user with fewer rows goes first.
One whose beginning is being prefilled by another waits until it can share that.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

CHUNK_POSITIONS: Final = 512
"""Budget of a step in which nobody decodes, in positions at the beginning of a text. A longer prompt takes several
steps, so that a cancel is obeyed and every step ends in bounded time."""

SCORE_POSITIONS: Final = 16
"""Most positions of one pass over a text that is scored, for the same reasons. Each of them is processed as a position
that decodes is, so a pass is shorter than one over a prompt."""

LEAST_POSITIONS: Final = 8
"""A chunk is never shorter, however far into a text it is: passes would be all overhead."""


def budget_beside(num_decoding: int) -> int:
    """Budget of a step in which so many others decode: about one such step's time. With more of them a
    step is longer anyway."""
    return min(20 + 2 * num_decoding, CHUNK_POSITIONS)


def num_chunks(num_positions: int) -> int:
    """The passes that a prefill of so many positions takes."""
    return -(-num_positions // CHUNK_POSITIONS)


def num_score_passes(num_positions: int) -> int:
    """The passes over so many positions of a text that is scored."""
    return -(-num_positions // SCORE_POSITIONS)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A prefill pass over the positions start..stop of one sequence."""

    sequence_id: str
    start: int
    stop: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The passes of one step."""

    prefill: tuple[Chunk, ...] = ()
    decode: tuple[str, ...] = ()  # sequence ids


@dataclass(slots=True)
class _Waiting:
    sequence_id: str
    num_positions: int  # to be prefilled
    user: str


def _from_start(sequence_id: str) -> int | None:  # noqa: ARG001 - alike for all
    return 0


class Scheduler:
    """A sequence waits for a row, is prefilled chunk by chunk, decodes until removed.

    With `prefills_whole` every prompt is one chunk, for a checkpoint that cannot go on from one. `attention_share`:
    what one cached position adds to the cost of a new one, as a share of what the new one costs at the beginning of a
    text.
    """

    def __init__(self, num_rows: int, *, prefills_whole: bool = False, attention_share: float = 0.0) -> None:
        if num_rows < 1:
            raise ValueError(f"num_rows is {num_rows}; an engine needs at least one row")
        self.num_rows = num_rows
        self._prefills_whole = prefills_whole
        self._attention_share = attention_share
        self._waiting: dict[str, _Waiting] = {}  # in the order in which they came
        self._prefilled: dict[str, int] = {}  # sequences being prefilled -> positions that are done
        self._lengths: dict[str, int] = {}  # of these, positions to be prefilled in all
        self._running: list[str] = []
        self._users: dict[str, str] = {}  # of those that have a row

    @property
    def num_running(self) -> int:
        """Rows in use."""
        return len(self._running) + len(self._prefilled)

    def add(self, sequence_id: str, num_positions: int, *, user: str = "") -> None:
        """Let it wait for a row; `num_positions` must be prefilled then."""
        self._waiting[sequence_id] = _Waiting(sequence_id, num_positions, user)

    def put_back(self, sequence_id: str, num_positions: int) -> None:
        """Take its row away: it waits, before all others, and is prefilled anew."""
        user = self._users.get(sequence_id, "")
        self.remove(sequence_id)
        self._waiting = {sequence_id: _Waiting(sequence_id, num_positions, user), **self._waiting}

    def remove(self, sequence_id: str) -> None:
        """Forget a sequence that has ended, wherever it was."""
        for table in (self._waiting, self._prefilled, self._lengths, self._users):
            table.pop(sequence_id, None)
        if sequence_id in self._running:
            self._running.remove(sequence_id)

    def plan(self, begin: Callable[[str], int | None] = _from_start) -> Plan:
        """The next step. `begin` is called for a sequence that is to get a row: how many of its first positions are
        computed already, fewer than all; None to let it wait for another that is computing them."""
        decode = tuple(self._running)
        budget = float(budget_beside(len(decode)) if decode else CHUNK_POSITIONS)
        chunks: list[Chunk] = []
        for sequence_id in list(self._prefilled):
            budget = self._take_chunk(sequence_id, budget, chunks)
        while budget > 0 and self.num_running < self.num_rows:
            admitted = self._let_in(begin)
            if admitted is None:
                break
            budget = self._take_chunk(admitted, budget, chunks)
        return Plan(tuple(chunks), decode)

    def _let_in(self, begin: Callable[[str], int | None]) -> str | None:
        """Give the next one a row."""
        if not self._waiting:
            return None
        rows = list(self._users.values())
        first = min(self._waiting.values(), key=lambda waiting: rows.count(waiting.user))  # of equals, the first
        start = begin(first.sequence_id)
        if start is None:
            return None
        del self._waiting[first.sequence_id]
        self._prefilled[first.sequence_id] = start
        self._lengths[first.sequence_id] = first.num_positions
        self._users[first.sequence_id] = first.user
        return first.sequence_id

    def _take_chunk(self, sequence_id: str, budget: float, chunks: list[Chunk]) -> float:
        """Plan the next chunk of a prompt; what is left of the budget."""
        if budget <= 0:
            return budget
        start, length = self._prefilled[sequence_id], self._lengths[sequence_id]
        price = 1 + self._attention_share * start
        num_positions = length - start
        if not self._prefills_whole:
            num_positions = min(num_positions, math.ceil(budget), max(LEAST_POSITIONS, int(budget / price)))
        stop = start + num_positions
        chunks.append(Chunk(sequence_id, start, stop, is_last=stop == length))
        self._prefilled[sequence_id] = stop
        if stop == length:
            del self._prefilled[sequence_id], self._lengths[sequence_id]
            self._running.append(sequence_id)
        return budget - price * num_positions
