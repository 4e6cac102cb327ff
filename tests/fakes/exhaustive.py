"""Beam search the slow way: every text that there is, with its score; and the search over that list.

For vocabularies of a few ids. It shares nothing with the engine's search.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Text = tuple[int, ...]
NextLogprobs = Callable[[Text], NDArray[np.float64]]
"""The log-probabilities (vocab,) of what follows a text."""


@dataclass(frozen=True)
class World:
    """Every possible text of up to `max_length` ids that nothing before its last has ended, and the sum of its
    log-probabilities."""

    vocab_size: int
    max_length: int
    end_ids: frozenset[int]
    totals: Mapping[Text, float]
    is_complete: Callable[[Text], bool] = lambda _: False  # ended without an end id

    @classmethod
    def of(
        cls,
        following: NextLogprobs,
        *,
        vocab_size: int,
        max_length: int,
        end_ids: frozenset[int],
        is_complete: Callable[[Text], bool] = lambda _: False,
    ) -> "World":
        totals: dict[Text, float] = {(): 0.0}
        world = cls(vocab_size, max_length, end_ids, totals, is_complete)
        for length in range(max_length):
            for text in [t for t in totals if len(t) == length and not world.is_whole(t)]:
                logprobs = following(text)
                possible = np.flatnonzero(logprobs > -np.inf).tolist()
                totals |= {(*text, i): totals[text] + float(logprobs[i]) for i in possible}
        return world

    def is_whole(self, text: Text) -> bool:
        return len(text) == self.max_length or bool(text and text[-1] in self.end_ids) or self.is_complete(text)

    def score(self, text: Text, penalty: float) -> float:
        return self.totals[text] / math.pow(len(text), penalty)

    def best(self, penalty: float) -> Text:
        """The whole text of the highest score, of all that there are."""
        return max((t for t in self.totals if self.is_whole(t)), key=lambda t: self.score(t, penalty))

    def search(self, num_beams: int, penalty: float, early_stopping: bool | str) -> Text:
        """What a beam search finds."""
        running: list[Text] = [()]
        found: list[Text] = []
        num_seen = max(2, 1 + len(self.end_ids)) * num_beams
        for length in itertools.count(1):
            every = [(*t, i) for t in running for i in range(self.vocab_size) if (*t, i) in self.totals]
            seen = sorted(every, key=self.totals.__getitem__, reverse=True)[:num_seen]
            running = [t for t in seen if not self.is_whole(t)][:num_beams]
            found += [t for t in seen[:num_beams] if self.is_whole(t)]
            found = sorted(found, key=lambda t: self.score(t, penalty), reverse=True)[:num_beams]
            if not running or (len(found) == num_beams and early_stopping is True):
                return found[0]
            hoped_for = self.max_length if early_stopping == "never" and penalty > 0 else length
            hope = self.totals[running[0]] / math.pow(hoped_for, penalty)
            if len(found) == num_beams and hope <= self.score(found[-1], penalty):
                return found[0]
        raise AssertionError
