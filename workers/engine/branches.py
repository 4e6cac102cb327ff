"""A constraint down the beams of a search: where each running beam's output stands, and where a step can lead.

A beam's matcher is never advanced. What continues the beam has a fork of it, which lives on only in a beam that does.
"""

from collections.abc import Sequence

from models.errors import ConstraintError
from workers.engine.beam import Continuation, Fate
from workers.engine.constraint import Matcher


class Branches:
    """The forks of one step."""

    def __init__(self, matchers: Sequence[Matcher | None]) -> None:
        """`matchers`: those of the running beams, in their order; None for each where there is no constraint."""
        self._matchers = matchers
        self._forks: dict[tuple[int, int], Matcher] = {}  # by parent and token id
        self.dead_end: ConstraintError | None = None  # the first that was come to

    def fate(self, continuation: Continuation) -> Fate:
        """What the constraint makes of a token that it allows: the `Judge` of this step."""
        matcher = self._matchers[continuation.parent]
        if matcher is None:
            return Fate.GOES_ON
        fork = matcher.fork()
        try:
            fork.accept(continuation.token_id)
            fork.allowed()
        except ConstraintError as exc:
            self.dead_end = self.dead_end or exc
            return Fate.IMPOSSIBLE
        self._forks[continuation.parent, continuation.token_id] = fork
        return Fate.ENDS if fork.is_complete else Fate.GOES_ON

    def matcher_of(self, continuation: Continuation) -> Matcher | None:
        """Where the output of a continuation stands, whose fate was asked; None where there is no constraint."""
        return self._forks.get((continuation.parent, continuation.token_id))
