"""How many runs this worker may have at once, one for each row of its engine, and how many questions.

A run that is claimed has a seat. One that finds none stays unclaimed, so that a worker with room may take it. A
question that finds none is refused.
"""

import threading


class Seats:
    """Counts those that are free. All methods may be called from any thread."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._num_free = number
        self._freed = threading.Condition()

    @property
    def num_taken(self) -> int:
        return self.number - self._num_free

    def take(self, at_most: int, *, within_s: float) -> int:
        """As many free seats as are wanted or there are; 0 where none comes free in this time."""
        with self._freed:
            self._freed.wait_for(lambda: self._num_free, within_s)
            num_taken = min(at_most, self._num_free)
            self._num_free -= num_taken
            return num_taken

    def give_back(self, number: int) -> None:
        with self._freed:
            self._num_free += number
            self._freed.notify_all()
