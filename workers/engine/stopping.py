"""When a run ends, and why: a scanner for stop strings and the order of precedence. Plain Python.

Stop strings are looked for in the generated text alone. Of the matches that a step completes, the one that begins
earliest wins, then the longer one. The scanner reads every character once for each stop string (Knuth, Morris and
Pratt 1977), so a step costs its own characters, however long the text is.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from models.events import NearMiss, StopReason, StopRecord

# The members of StopReason stand in the order in which they are tried.
_PRECEDENCE: Final = {reason: place for place, reason in enumerate(StopReason)}


@dataclass(frozen=True, slots=True)
class Match:
    """A stop string in the text. Characters are counted from the beginning of the generated text."""

    stop: str
    start: int
    end: int
    cut: int  # where the run's text ends: `start`, or `end` when the stop string is to stay in the text


class _Automaton:
    """One stop string: how many of its characters the text read so far ends with."""

    __slots__ = ("best", "best_push", "borders", "matched", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.borders = _borders(stop)
        self.matched = 0
        self.best = 0
        self.best_push: int | None = None

    def read(self, piece: str, push: int) -> int | None:
        """Read on; the number of characters of `piece` up to the end of the first whole match, or None."""
        for index, character in enumerate(piece):
            while self.matched and self.stop[self.matched] != character:
                self.matched = self.borders[self.matched - 1]
            if self.stop[self.matched] == character:
                self.matched += 1
            if self.matched > self.best:
                self.best, self.best_push = self.matched, push
            if self.matched == len(self.stop):
                return index + 1
        return None


class StopScanner:
    """Finds the first stop string while the text grows.

    Push every token's piece once, in order, the empty ones too: the number of pushes before one is the position that
    near misses name. After a match nothing more may be pushed.
    """

    def __init__(self, stop: Sequence[str], *, include_stop: bool) -> None:
        self._automata = [_Automaton(s) for s in dict.fromkeys(stop)]
        self._include_stop = include_stop
        self._length = 0
        self._num_pushes = 0
        self._match: Match | None = None

    def push(self, piece: str) -> Match | None:
        """Take the next piece of text; the match that it completes, or None."""
        found = []
        for automaton in self._automata:
            read = automaton.read(piece, self._num_pushes)
            if read is not None:
                end = self._length + read
                start = end - len(automaton.stop)
                cut = end if self._include_stop else start
                found.append(Match(automaton.stop, start, end, cut))
        self._length += len(piece)
        self._num_pushes += 1
        if found:
            self._match = min(found, key=lambda m: (m.start, -m.end))
        return self._match

    @property
    def num_safe(self) -> int:
        """Characters, from the beginning of the text, that no match holds or can come to hold."""
        if self._match is not None:
            return self._match.cut
        return self._length - max((a.matched for a in self._automata), default=0)

    def misses(self) -> tuple[NearMiss, ...]:
        """For each stop string that did not end the run: the longest part of it, from its beginning, that appeared.

        One that the same piece completed, later or shorter than the one that won, has all of its characters.
        """
        matched = self._match.stop if self._match else None
        return tuple(NearMiss(a.stop, a.best, a.best_push) for a in self._automata if a.stop != matched)


def _borders(text: str) -> list[int]:
    """For each prefix of `text` the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(text)
    length = 0
    for index in range(1, len(text)):
        while length and text[index] != text[length]:
            length = borders[length - 1]
        if text[index] == text[length]:
            length += 1
        borders[index] = length
    return borders


@dataclass(frozen=True, slots=True)
class StepFacts:
    """Everything that can end a run, as it stands after one step."""

    num_generated: int  # tokens of the output so far, this step's included
    max_tokens: int
    num_positions: int  # prompt and output
    context_length: int
    token_id: int | None = None  # picked at this step; None where none was
    end_token_ids: frozenset[int] = frozenset()  # of the checkpoint
    stop_token_ids: frozenset[int] = frozenset()  # of the caller
    ignore_eos: bool = False
    match: Match | None = None
    is_constraint_complete: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The one reason that ends the run at this step, and its evidence."""

    reason: StopReason
    also: tuple[StopReason, ...]
    token_id: int | None  # the end or stop token
    match: Match | None

    def record(self, *, withheld: int = 0, misses: tuple[NearMiss, ...] = (), message: str | None = None) -> StopRecord:
        """The run's stop record. `withheld`: tokens that the match took out of the text wholly."""
        match = self.match
        return StopRecord(
            reason=self.reason,
            matched=match.stop if match else None,
            token_id=self.token_id,
            span=(match.start, match.end) if match else None,
            withheld=withheld,
            also=self.also,
            misses=misses,
            message=message,
        )


def decide(facts: StepFacts) -> Decision | None:
    """The reason that ends the run at this step, or None to go on. The order of precedence is that of StopReason."""
    true = _in_order(_true_reasons(facts))
    if not true:
        return None
    reason = true[0]
    names_token = reason in (StopReason.EOS, StopReason.STOP_TOKEN)
    return Decision(
        reason=reason,
        also=tuple(true[1:]),
        token_id=facts.token_id if names_token else None,
        match=facts.match if reason is StopReason.STOP_STRING else None,
    )


def interruption(reasons: Collection[StopReason]) -> Decision:
    """The ending of a run for reasons from outside its own rules: a cancel, a limit, an error. At least one."""
    first, *also = _in_order(reasons)
    return Decision(first, tuple(also), None, None)


def _in_order(reasons: Collection[StopReason]) -> list[StopReason]:
    return sorted(reasons, key=_PRECEDENCE.__getitem__)


def _true_reasons(facts: StepFacts) -> set[StopReason]:
    conditions = {
        StopReason.EOS: facts.token_id in facts.end_token_ids and not facts.ignore_eos,
        StopReason.STOP_TOKEN: facts.token_id in facts.stop_token_ids,
        StopReason.STOP_STRING: facts.match is not None,
        StopReason.CONSTRAINT_COMPLETE: facts.is_constraint_complete,
        StopReason.MAX_TOKENS: facts.num_generated >= facts.max_tokens,
        StopReason.CONTEXT_FULL: facts.num_positions >= facts.context_length,
    }
    return {reason for reason, holds in conditions.items() if holds}
