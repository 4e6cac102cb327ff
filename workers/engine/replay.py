"""A run whose tokens are known, walked in parallel: raw logits at every output position, a bounded number at a time.

Position n is judged by the logits after the prompt and the n output tokens before it. The prompt is computed in the
chunks of a prefill, the output in spans of SPAN_POSITIONS, so what is in memory at once is the KV cache and the numbers
of one span, however long the run.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from torch import Tensor

from models.errors import NumericalError, PromptError
from models.sampling import Settings
from workers.engine.admission import check_ids, new_matcher
from workers.engine.checkpoint import Checkpoint
from workers.engine.constraint import Allowances
from workers.engine.logits.pipeline import Row, unhealthy_rows
from workers.engine.runner import Runner

SPAN_POSITIONS: Final = 32

CHUNK_POSITIONS: Final = 64
"""Of a prompt, in one pass: short, because a worker looks back between the steps of runs that stream."""

_Result = TypeVar("_Result")

Pieces = Generator[None, None, _Result]
"""A computation that stops after every piece of about one short pass, so that others can use the device meanwhile."""

RowsAt = Callable[[range], list[Row]]
"""The rows that stand at some output positions, under certain settings."""


@dataclass(frozen=True, slots=True)
class Span:
    """Raw logits of neighbouring output positions."""

    positions: range
    logits: Tensor  # (positions, vocab) float32, each row healthy


class Replay:
    """One run. `spans` computes; `under` says how the stages see the run."""

    def __init__(self, checkpoint: Checkpoint, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> None:
        """Raises PromptError for a run that this checkpoint cannot have had."""
        _check(checkpoint, prompt_ids, output_ids)
        self._checkpoint = checkpoint
        self._prompt_ids = np.asarray(prompt_ids, dtype=np.int64)
        self._output_ids = np.asarray(output_ids, dtype=np.int64)

    def spans(self, num_positions: int, *, span_positions: int = SPAN_POSITIONS) -> Iterator[Span]:
        """The first `num_positions` output positions, at most one more than there are tokens, the first one alone.

        Raises RunError.
        """
        return (span for span in self.passes(num_positions, span_positions=span_positions) if span is not None)

    def passes(self, num_positions: int, *, span_positions: int = SPAN_POSITIONS) -> Iterator[Span | None]:
        """What each pass gives: None for a chunk of the prompt that is not its last, then `spans`. Raises RunError."""
        if not num_positions:
            return
        runner = Runner(self._checkpoint)
        cache = runner.new_cache()
        prompt = self._prompt_ids.tolist()
        chunk_positions = CHUNK_POSITIONS
        if self._checkpoint.info.prefills_whole:  # such a checkpoint goes on by single positions alone
            chunk_positions, span_positions = len(prompt), 1
        for start in range(0, len(prompt), chunk_positions):
            logits = runner.prefill(cache, prompt[start : start + chunk_positions])
            if start + chunk_positions < len(prompt):
                yield None
        yield _span(0, logits)
        for start in range(1, num_positions, span_positions):
            stop = min(start + span_positions, num_positions)
            yield _span(start, runner.extend(cache, self._output_ids[start - 1 : stop - 1].tolist()))

    def under(self, settings: Settings) -> RowsAt:
        """How the stages see this run under `settings`. Raises SettingError for what the checkpoint cannot have."""
        settings.check_vocabulary(self._checkpoint.info.vocab_size)
        settings.check_given()
        matcher = new_matcher(self._checkpoint, self._prompt_ids.tolist(), settings)
        allowances = None if matcher is None else Allowances(matcher, self._output_ids.tolist())
        banned_ids = self._checkpoint.banned_ids(settings)
        end_token_ids = frozenset(self._checkpoint.info.end_token_ids)

        def rows(positions: range) -> list[Row]:
            return [
                Row(
                    settings,
                    self._prompt_ids,
                    self._output_ids[:position],
                    banned_ids,
                    end_token_ids,
                    allowed=None if allowances is None else allowances.at(position),
                )
                for position in positions
            ]

        return rows


def finished(pieces: Pieces[_Result]) -> _Result:
    """What a computation gives, carried out at once."""
    while True:
        try:
            next(pieces)
        except StopIteration as stop:
            result: _Result = stop.value
            return result


def _span(start: int, logits: Tensor) -> Span:
    if unhealthy := unhealthy_rows(logits):
        raise NumericalError(
            f"the checkpoint gave NaN or nothing finite at output position {start + unhealthy[0]}; "
            "check the weights, or load the checkpoint in float32"
        )
    return Span(range(start, start + len(logits)), logits)


def _check(checkpoint: Checkpoint, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> None:
    info = checkpoint.info
    check_ids(info, prompt_ids, (*prompt_ids, *output_ids))
    if len(prompt_ids) + len(output_ids) > info.context_length:
        raise PromptError(
            f"prompt and output have {len(prompt_ids) + len(output_ids):,} tokens and {info.name} has room for "
            f"{info.context_length:,}; this run is not of this checkpoint"
        )
