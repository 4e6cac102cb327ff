"""Which sequences run in the next step: first come, first served, with a bound on how many run at once."""

from collections import deque
from dataclasses import dataclass
from typing import Final

CHUNK_POSITIONS: Final = 512
"""Most positions of one prefill pass. A longer prompt takes several steps, so that the streams beside it go on, a
cancel is obeyed and every step ends in bounded time."""

SCORE_POSITIONS: Final = 16
"""Most positions of one pass over a text that is scored, for the same reasons. Each of them is processed as a position
that decodes is, so a pass is shorter than one over a prompt."""


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

    prefill: Chunk | None = None
    decode: tuple[str, ...] = ()  # sequence ids


class Scheduler:
    """Knows ids and lengths alone. A sequence waits for a row, is prefilled chunk by chunk, decodes until removed.

    With `prefills_whole` every prompt is one chunk, for a checkpoint that cannot go on from one.
    """

    def __init__(self, num_rows: int, *, prefills_whole: bool = False) -> None:
        if num_rows < 1:
            raise ValueError(f"num_rows is {num_rows}; an engine needs at least one row")
        self.num_rows = num_rows
        self._prefills_whole = prefills_whole
        self._num_positions: dict[str, int] = {}  # to be prefilled, of every sequence that waits or is prefilled
        self._waiting: deque[str] = deque()
        self._prefilled: dict[str, int] = {}  # the sequence being prefilled -> positions that are done
        self._running: list[str] = []

    @property
    def num_running(self) -> int:
        return len(self._running) + len(self._prefilled)

    def add(self, sequence_id: str, num_positions: int) -> None:
        """Let it wait for a row; `num_positions` must be prefilled then."""
        self._num_positions[sequence_id] = num_positions
        self._waiting.append(sequence_id)

    def remove(self, sequence_id: str) -> None:
        """Forget a sequence that has ended, wherever it was."""
        self._num_positions.pop(sequence_id, None)
        self._prefilled.pop(sequence_id, None)
        for line in (self._running, self._waiting):
            if sequence_id in line:
                line.remove(sequence_id)

    def plan(self) -> Plan:
        """The next step: one position for each running sequence, and one chunk of one prompt where a row is free.

        One prompt at a time, so that a burst of arrivals delays the next token of those that run by one chunk only.
        """
        decode = tuple(self._running)
        if not self._prefilled and self._waiting and len(self._running) < self.num_rows:
            self._prefilled[self._waiting.popleft()] = 0
        return Plan(prefill=self._next_chunk(), decode=decode)

    def _next_chunk(self) -> Chunk | None:
        for sequence_id, start in self._prefilled.items():
            num_positions = self._num_positions[sequence_id]
            stop = num_positions if self._prefills_whole else min(start + CHUNK_POSITIONS, num_positions)
            self._prefilled[sequence_id] = stop
            if stop == num_positions:
                del self._prefilled[sequence_id], self._num_positions[sequence_id]
                self._running.append(sequence_id)
            return Chunk(sequence_id, start, stop, is_last=stop == num_positions)
        return None
