"""Influence: what each active control did to a run, measured by taking it away.

For one control at a time the run's own prefix is judged with the settings as they are, and once more with that control
neutral. It *changed* a position where the two sets of kept tokens differ, or the final logit of a kept token. It
*decided* a position where the same noise picks another token without it. What a control did to a token that another one
removes anyway, or after greedy decoding has taken the best, counts for nothing. The tokens that a branch begins with
were put there and not picked, so nothing decided them.

A control is one field of the settings: `presence_penalty` and `frequency_penalty` are two, of one stage. Scopes and the
order of the stages belong to the settings that are compared and are no controls of their own. With the temperature
neutral, T = 1, a greedy run draws, and the stages that greedy leaves out take part.
"""

from collections.abc import Sequence
from typing import Final

import torch

from models.errors import SettingError
from models.examination import ControlInfluence, Influence
from models.sampling import NEUTRAL, Settings
from workers.engine.checkpoint import Checkpoint
from workers.engine.logits.pipeline import Processed, Row, process
from workers.engine.replay import Pieces, Replay, RowsAt, Span, finished
from workers.engine.sampler import pick

CONTROLS: Final = (
    "logit_bias",
    "banned",
    "constraint",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram_size",
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
)
"""Every field of the settings that has a part in a distribution or a pick, in the default order of their stages."""


def influence(
    checkpoint: Checkpoint,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    settings: Settings,
    *,
    num_given: int = 0,
) -> Influence:
    """The influence of each active control of `settings` on the run with the tokens `output_ids`, of which a branch
    was given the first `num_given`.

    Raises PromptError, SettingError, and RunError where the checkpoint's numbers are no distribution.
    """
    return finished(influence_pieces(checkpoint, prompt_ids, output_ids, settings, num_given=num_given))


@torch.inference_mode()
def influence_pieces(
    checkpoint: Checkpoint,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    settings: Settings,
    *,
    num_given: int = 0,
) -> Pieces[Influence]:
    """`influence`, piece by piece."""
    if settings.seed is None:
        raise SettingError("seed: it is missing; influence on picks needs the noise of a seed", field="seed")
    replay = Replay(checkpoint, prompt_ids, output_ids)
    rows_at = replay.under(settings)
    meters = [_Meter(control, replay.under(_without(settings, control))) for control in active_controls(settings)]
    for span in replay.passes(len(output_ids) if meters else 0):
        yield
        if span is None:
            continue
        rows = rows_at(span.positions)
        processed = process(span.logits, rows)
        picks = _picks(processed, rows, span)
        for meter in meters:
            meter.read(span, processed, picks, num_given=num_given)
            yield
    return Influence(len(output_ids), tuple(meter.told for meter in meters))


def active_controls(settings: Settings) -> tuple[str, ...]:
    """The controls that are not neutral."""
    return tuple(control for control in CONTROLS if getattr(settings, control) != getattr(NEUTRAL, control))


def _without(settings: Settings, control: str) -> Settings:
    return settings.with_changes(**{control: NEUTRAL.as_dict()[control]})


def _picks(processed: Processed, rows: Sequence[Row], span: Span) -> torch.Tensor:
    return pick(processed, rows, span.positions).token_ids


class _Meter:
    """Counts over the spans for one control."""

    def __init__(self, control: str, rows_without: RowsAt) -> None:
        self._control = control
        self._rows_without = rows_without
        self._num_changed = 0
        self._num_decided = 0

    def read(self, span: Span, processed: Processed, picks: torch.Tensor, *, num_given: int) -> None:
        """Compare the positions of `span` with themselves without the control; the first `num_given` have no pick."""
        rows = self._rows_without(span.positions)
        without = process(span.logits, rows)
        # A removed token is minus infinity on one side alone, so this compares kept sets and logits in one.
        is_changed = (processed.final.logits != without.final.logits).any(dim=-1)
        self._num_changed += int(is_changed.sum())
        first_pick = max(0, num_given - span.positions.start)
        self._num_decided += int((picks != _picks(without, rows, span))[first_pick:].sum())

    @property
    def told(self) -> ControlInfluence:
        return ControlInfluence(self._control, self._num_changed, self._num_decided)
