"""One sequence's beam search: its beams with their accounts, what has finished, and the lineage so far.

Every beam carries the ledger entry of each of its tokens, written in the step that chose it: the numbers that are shown
for the winner are those that the search compared, and no pass is made for them. Entries of beams that die go with them.

Under a constraint every running beam has its own matcher. A beam finishes where its constraint is complete, with its
last token of text; one that comes to a dead end is given up, and the search fails only where no beam is left.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from models.beams import BeamStep, BeamsTraced, PrunedBeam, TracedBeam
from models.errors import ConstraintError, NumericalError
from models.sampling import DEFAULT_ORDER, Settings, Stage
from workers.engine.beam import BeamRules, Continuation, Step, decide
from workers.engine.branches import Branches
from workers.engine.constraint import Matcher
from workers.engine.ledger import LedgerEntry, write
from workers.engine.logits import constraint
from workers.engine.logits.pipeline import Processed, Row, process, unhealthy_rows
from workers.engine.sampler import Picks

MAX_TRACED_STEPS: Final = 2000
"""Steps that the lineage tells of: at 16 beams about 1.4 MB."""

_INERT: Final = frozenset(DEFAULT_ORDER[DEFAULT_ORDER.index(Stage.TEMPERATURE) :])
_DECIMALS: Final = 6


@dataclass(frozen=True, slots=True)
class Choice:
    """One token of a beam."""

    entry: LedgerEntry
    parent: int  # place of the beam that it continued, in the step before
    at_s: float  # when the step was decided, in the engine's clock


@dataclass(frozen=True, slots=True)
class Beam:
    """A text that the search follows or has finished."""

    choices: tuple[Choice, ...]
    total: float
    score: float
    matcher: Matcher | None = None  # where its constraint stands; None without one, and once it has finished

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(choice.entry.token_id for choice in self.choices)


class BeamSearch:
    """`advance` with the raw logits of the running beams, pass after pass, until `is_over`."""

    def __init__(self, rules: BeamRules, row: Row, *, matcher: Matcher | None = None) -> None:
        """`row` and `matcher` (of a constraint, not complete) are the sequence before its first token, with the user's
        settings."""
        self._rules = rules
        self._row = replace(row, settings=searched(row.settings), output_ids=())
        self._running = [Beam((), 0.0, 0.0, matcher)]
        self._finished: list[Beam] = []
        self._steps: list[BeamStep] = []
        self._num_steps = 0
        self.stepped_s = 0.0  # when the last step was decided
        self.is_over = False

    @property
    def parents(self) -> list[int]:
        """For each running beam the row of the last pass that it continues."""
        return [beam.choices[-1].parent for beam in self._running]

    @property
    def last_ids(self) -> list[int]:
        """The last token of each running beam: what the next pass computes."""
        return [beam.choices[-1].entry.token_id for beam in self._running]

    @property
    def best(self) -> Beam | None:
        """The winner; while the search goes on, the best of what has finished and what runs, each by its score."""
        beams = [beam for beam in (*self._finished, *self._running) if beam.choices]
        return max(beams, key=lambda beam: beam.score, default=None)

    def advance(self, logits: Tensor, now_s: float) -> None:
        """Take one step. `logits`: raw, (beams, vocab).

        Raises NumericalError, and ConstraintError where every beam is at a dead end and none has finished. Then nothing
        has changed.
        """
        length = self._num_steps + 1
        if unhealthy := unhealthy_rows(logits):
            raise NumericalError(
                f"the checkpoint gave NaN or nothing finite in beam {unhealthy[0]} at output position {length - 1}; "
                "the best beam so far is kept"
            )
        rows = [self._row_of(beam) for beam in self._running]
        processed, following = _processed(logits.log_softmax(dim=-1), rows)
        totals = [beam.total for beam in self._running]
        scores = [beam.score for beam in self._finished]
        branches = Branches([beam.matcher for beam in self._running])
        step = decide(following, totals, scores, length=length, rules=self._rules, judge=branches.fate)
        if not (step.running or step.finished or self._finished):
            raise branches.dead_end or ConstraintError(constraint.RULED_OUT)
        living = [*step.running, *(finish.continuation for finish in step.finished)]
        entries = _entries(processed, rows, living, position=length - 1) if living else []
        beams = [self._continued(c, entry, now_s, branches) for c, entry in zip(living, entries, strict=True)]
        self._take(step, beams)
        self.stepped_s = now_s

    def _row_of(self, beam: Beam) -> Row:
        allowed = None if beam.matcher is None else beam.matcher.allowed()
        return replace(self._row, output_ids=beam.token_ids, allowed=allowed)

    def _continued(self, continuation: Continuation, entry: LedgerEntry, now_s: float, branches: Branches) -> Beam:
        before = self._running[continuation.parent].choices
        choices = (*before, Choice(entry, continuation.parent, now_s))
        score = self._rules.score(continuation.total, len(choices))
        return Beam(choices, continuation.total, score, branches.matcher_of(continuation))

    def _take(self, step: Step, beams: Sequence[Beam]) -> None:
        """`beams`: those that run on, then those that have finished."""
        self._num_steps += 1
        self._running = list(beams[: len(step.running)])
        finished = [*self._finished, *(replace(beam, matcher=None) for beam in beams[len(step.running) :])]
        finished.sort(key=lambda beam: -beam.score)
        self._finished = finished[: self._rules.num_beams]
        self.is_over = step.is_over
        if self.is_over:
            self._running = []
        if self._num_steps <= MAX_TRACED_STEPS:
            self._steps.append(_traced(step, self._rules, self._num_steps))

    def traced(self) -> BeamsTraced | None:
        """The lineage so far, with the best beam as the winner; None before the first step."""
        best = self.best
        if best is None:
            return None
        return BeamsTraced(
            num_beams=self._rules.num_beams,
            sequence_score=_round(best.score),
            beam_indices=tuple(choice.parent for choice in best.choices),
            num_steps=self._num_steps,
            steps=tuple(self._steps),
        )


def rules_for(settings: Settings, *, end_token_ids: Collection[int], room: int) -> BeamRules:
    """The rules that `settings` ask for. `room`: positions that the context has left after the prompt.

    As in transformers, where they would be given as further end tokens, the caller's stop tokens end a beam too.
    """
    ends = set(settings.stop_token_ids) | (set() if settings.ignore_eos else set(end_token_ids))
    return BeamRules(
        num_beams=settings.num_beams,
        length_penalty=settings.length_penalty,
        early_stopping=settings.early_stopping,
        end_token_ids=frozenset(ends),
        max_length=min(settings.max_tokens, room),
    )


def searched(settings: Settings) -> Settings:
    """The settings that a search's rows go by: the stages from temperature on are inert, and nothing is drawn."""
    # The others keep their order. Greedy decoding ends the stages at temperature, so the inert ones follow that.
    order = sorted(settings.order, key=lambda stage: (stage in _INERT, stage is not Stage.TEMPERATURE))
    return settings.model_copy(update={"temperature": 0.0, "order": tuple(order)})


def _processed(logprobs: Tensor, rows: Sequence[Row]) -> tuple[Processed, Tensor]:
    """The account of each row, and the numbers (beams, vocab) that its beam goes on with: none in a row of which the
    raw ones rule out all that its constraint allows."""
    if rows[0].allowed is None:
        processed = process(logprobs, rows)
        return processed, processed.final.logits
    is_lost = constraint.ruled_out(logprobs, constraint.allowed(rows, logprobs))
    # A lost row goes through the stages as if it were free: a batch in which one has nothing to keep is refused whole.
    free = np.ones(logprobs.shape[1], dtype=bool)
    taken = [replace(row, allowed=free) if lost else row for row, lost in zip(rows, is_lost.tolist(), strict=True)]
    processed = process(logprobs, taken)
    return processed, processed.final.logits.masked_fill(is_lost.unsqueeze(1), -torch.inf)


def _entries(
    processed: Processed, rows: Sequence[Row], living: Sequence[Continuation], *, position: int
) -> list[LedgerEntry]:
    """The ledger's entries of the tokens that some beams go on with."""
    parents = [c.parent for c in living]
    token_ids = torch.tensor([c.token_id for c in living], device=processed.removed_by.device)
    picks = Picks(token_ids, (position,) * len(living))
    return write(processed.of_rows(parents), picks, [rows[parent] for parent in parents])


def _traced(step: Step, rules: BeamRules, length: int) -> BeamStep:
    def beam(continuation: Continuation) -> TracedBeam:
        score = rules.score(continuation.total, length)
        return TracedBeam(
            continuation.parent, continuation.token_id, total=_round(continuation.total), score=_round(score)
        )

    return BeamStep(
        beams=tuple(beam(c) for c in step.running),
        finished=tuple(beam(f.continuation) for f in step.finished),
        pruned=tuple(PrunedBeam(p.continuation.parent, p.continuation.token_id, _round(p.margin)) for p in step.pruned),
    )


def _round(value: float) -> float:
    """As the events hold numbers: 6 decimals, and one zero."""
    return round(value, _DECIMALS) + 0.0
