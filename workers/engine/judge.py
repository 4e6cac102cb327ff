"""What becomes of raw logits: the next token of each sequence, picked or given, or the next step of its beam search.

Sequences that pick are taken together, row by row of one batch; no row's numbers depend on its neighbours. Where the
fault of one stands in the way of all, each is taken by itself, so that only the one that is to blame fails.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from models.errors import ConstraintError, NumericalError
from workers.engine.drafts import draft
from workers.engine.given import write_given
from workers.engine.ledger import LedgerEntry, write
from workers.engine.logits.pipeline import Row, process, unhealthy_rows
from workers.engine.runner import is_device_fault
from workers.engine.sampler import pick
from workers.engine.search import BeamSearch
from workers.engine.sequence import Sequence as Run
from workers.engine.vocabulary import Vocabulary

Asked = tuple[Run, Tensor]
"""A sequence and the raw logits that its next tokens are made of: (1, vocab), or (positions, vocab) for given ones."""

Guard = Callable[[Run, Callable[[], None]], None]
"""Calls a function that advances a sequence. What goes wrong in it ends that sequence alone."""


class Judge:
    """Gives sequences their tokens."""

    def __init__(self, vocabulary: Vocabulary, clock: Callable[[], float]) -> None:
        self._vocabulary = vocabulary
        self._clock = clock

    def give_tokens(self, asked: Iterable[Asked], guard: Guard) -> None:
        """One more token for each sequence that picks, the next ones of a text that is given."""
        picking: list[Asked] = []
        for run, logits in asked:
            if run.given_ids is None:
                picking.append((run, logits))
            else:
                guard(run, partial(self._take_rows, run, logits))
        entries = _picked_together(picking) if picking else []
        for (run, logits), entry in zip(picking, entries, strict=True):
            guard(run, partial(self._take_pick, run, logits, entry))

    def search(self, run: Run, search: BeamSearch, logits: Tensor) -> bool:
        """Take the next step of a beam search from the raw `logits` (beams, vocab); at its end, the winner's tokens.

        False where these are not those that an earlier attempt has shown. Raises NumericalError.
        """
        search.advance(logits, self._clock())
        return not search.is_over or self.read_best(run, search)

    def read_best(self, run: Run, search: BeamSearch) -> bool:
        """Take the tokens of the best beam as if they were picked one after the other.

        Those that an earlier attempt has shown are only compared; False, and nothing is taken, where they differ.
        """
        best, shown = search.best, run.output_ids
        if best is None or list(best.token_ids[: len(shown)]) != shown:
            return False
        for choice in best.choices[len(shown) :]:
            # Only the end of the search makes the last one known.
            is_last = run.position + 1 == len(best.choices)
            self._accept(run, choice.entry, search.stepped_s if is_last else choice.at_s)
        return True

    def _take_pick(self, run: Run, logits: Tensor, entry: LedgerEntry | None) -> None:
        if entry is None and unhealthy_rows(logits):
            raise _nothing_to_take(run)
        self._accept(run, entry or picked([(run, logits)])[0], self._clock())

    def _take_rows(self, run: Run, logits: Tensor) -> None:
        """Take the next given tokens, or those before a row that nothing can be made of."""
        sick = unhealthy_rows(logits)
        num_healthy = sick[0] if sick else len(logits)
        try:
            if num_healthy:
                self._take_given(run, logits[:num_healthy])
        except ConstraintError:
            if num_healthy == 1:
                raise
            for index in range(num_healthy):  # those before the one that is to blame are kept
                self._take_given(run, logits[index : index + 1])
        if sick:
            raise _nothing_to_take(run)

    def _take_given(self, run: Run, logits: Tensor) -> None:
        entries = given(run, logits)
        now_s = self._clock()
        for entry in entries:
            self._accept(run, entry, now_s)
            if run.decision is not None:
                return  # an opening may hold what ends a run

    def _accept(self, run: Run, entry: LedgerEntry, at_s: float) -> None:
        """Append the token of `entry`, picked or given at `at_s`, and apply the stop rules."""
        if run.is_opening:
            run.counters.token_times_s.clear()  # the picks begin after the last of the tokens that it was given
        run.counters.token_times_s.append(at_s)
        elapsed_ms = run.counters.elapsed_ms(at_s)
        run.accept(entry.token_id, draft(entry, self._vocabulary, position=run.position, elapsed_ms=elapsed_ms))


def _nothing_to_take(run: Run) -> NumericalError:
    return NumericalError(
        f"the checkpoint gave NaN or nothing finite at output position {run.position}; the tokens before it are kept"
    )


def row_of(run: Run, position: int) -> Row:
    """How the stages see a sequence at an output position."""
    return Row(
        settings=run.settings,
        prompt_ids=run.prompt_ids,
        output_ids=run.output_ids if run.given_ids is None else run.given_ids[:position],
        banned_ids=run.banned_ids,
        end_token_ids=run.limits.end_token_ids,
        allowed=run.allowed_at(position),
    )


def picked(asked: Sequence[Asked]) -> list[LedgerEntry]:
    """The pick of each sequence, from its raw logits. Raises NumericalError where one's are not healthy, and
    ConstraintError."""
    positions = [run.position for run, _ in asked]
    rows = [row_of(run, position) for (run, _), position in zip(asked, positions, strict=True)]
    logits = asked[0][1] if len(asked) == 1 else torch.cat([logits for _, logits in asked])
    processed = process(logits, rows)
    return write(processed, pick(processed, rows, positions), rows)


def given(run: Run, logits: Tensor) -> Iterable[LedgerEntry]:
    """The next tokens of a text that is given, one for each row of its healthy raw `logits`. Raises RunError."""
    positions = range(run.position, run.position + len(logits))
    rows = [row_of(run, position) for position in positions]
    token_ids = [] if run.given_ids is None else run.given_ids[positions.start : positions.stop].tolist()
    return write_given(process(logits, rows), token_ids, rows, positions)


def _picked_together(asked: Sequence[Asked]) -> Sequence[LedgerEntry | None]:
    """The picks of all; None for each where one of them cannot be made."""
    try:
        return picked(asked)
    except Exception as exc:
        if is_device_fault(exc):
            raise
        return [None] * len(asked)
