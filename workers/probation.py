"""Runs that their last attempt did not bring on begin again one at a time.

When a worker dies, the runs that it had cannot tell which of them did it. Those that came on are not in
question. The others take turns, each alone until its first new tokens are saved: the one that kills the worker is then
the only one whose attempt is counted, and the others, not even claimed, lose none.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turn:
    """What one run holds while it works; `end` gives way to the next one that is on probation."""

    def __init__(self, lock: "threading.Lock | None" = None) -> None:
        self._lock = lock

    @property
    def is_held(self) -> bool:
        """Whether others wait for this run's first new tokens."""
        return self._lock is not None

    def end(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


class Probation:
    """The turns of one worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, *, is_suspect: bool) -> Iterator[Turn]:
        """Wait for a suspect's turn; a run that is none begins at once."""
        if is_suspect:
            self._lock.acquire()
        turn = Turn(self._lock if is_suspect else None)
        try:
            yield turn
        finally:
            turn.end()
