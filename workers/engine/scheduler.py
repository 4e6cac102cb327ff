"""Which sequences run in the next step: first come, first served, with a bound on how many run at once."""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """The passes of one step, by sequence id."""

    prefill: tuple[str, ...] = ()
    decode: tuple[str, ...] = ()


class Scheduler:
    """Knows ids alone. A sequence waits, is prefilled in the step that gives it a row, and decodes until removed."""

    def __init__(self, num_rows: int) -> None:
        if num_rows < 1:
            raise ValueError(f"num_rows is {num_rows}; an engine needs at least one row")
        self.num_rows = num_rows
        self._waiting: deque[str] = deque()
        self._running: list[str] = []

    @property
    def num_running(self) -> int:
        return len(self._running)

    def add(self, sequence_id: str) -> None:
        """Let it wait for a row."""
        self._waiting.append(sequence_id)

    def remove(self, sequence_id: str) -> None:
        """Forget a sequence that has ended, wherever it was."""
        for line in (self._running, self._waiting):
            if sequence_id in line:
                line.remove(sequence_id)

    def plan(self) -> Plan:
        """The next step: one position for each running sequence, and one prompt where a row is free.

        One prompt a step, so that a burst of arrivals delays the next token of those that run by one prefill only.
        """
        decode = tuple(self._running)
        if not self._waiting or len(self._running) >= self.num_rows:
            return Plan(decode=decode)
        admitted = self._waiting.popleft()
        self._running.append(admitted)
        return Plan(prefill=(admitted,), decode=decode)
