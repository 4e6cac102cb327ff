"""From raw logits to the distribution that is picked from: the stages, in each row's own order, with an account.

A stage is written once, over a batch. Rows whose active stages are the same, in the same order, go through them
together; a neutral stage is absent. Every operation is row-wise, so a row's numbers do not depend on its neighbours.

The raw logits are never changed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from models.sampling import DEFAULT_ORDER, Settings, Stage
from workers.engine.logits import penalties, removal, truncation
from workers.engine.logits.penalties import Change, Penalty
from workers.engine.logits.rows import FLOAT32_MAX, Row, row_sums

__all__ = ["NOT_REMOVED", "Processed", "Row", "active_stages", "process", "unhealthy_rows"]

NOT_REMOVED: Final = -1

Removal = Callable[[Tensor, Sequence[Row]], Tensor]

_PENALTIES: Final[dict[Stage, Penalty]] = {
    Stage.BIAS: penalties.bias,
    Stage.REPETITION: penalties.repetition,
    Stage.PRESENCE_FREQUENCY: penalties.presence_frequency,
}
_REMOVALS: Final[dict[Stage, Removal]] = {
    Stage.BIAS: removal.banned,
    Stage.NO_REPEAT_NGRAM: removal.no_repeat_ngram,
    Stage.MIN_TOKENS: removal.min_tokens,
    Stage.TOP_K: truncation.top_k,
    Stage.TOP_P: truncation.top_p,
    Stage.MIN_P: truncation.min_p,
    Stage.TYPICAL: truncation.typical,
}
# Stages that could remove every token; the others always leave one.
_MAY_REMOVE_ALL: Final = frozenset({Stage.BIAS, Stage.NO_REPEAT_NGRAM, Stage.MIN_TOKENS})
_CODES: Final = {stage: code for code, stage in enumerate(DEFAULT_ORDER)}


@dataclass(frozen=True, slots=True)
class Processed:
    """Both distributions of a batch, and what each stage did. Tensors are (rows, vocab), on the logits' device.

    Where a row has no active stage, its processed numbers are its raw ones, bit for bit.
    """

    raw_logits: Tensor  # float32
    raw_logprobs: Tensor  # float64
    raw_probs: Tensor  # float64
    logits: Tensor  # float32, after the last stage; -inf where removed
    logprobs: Tensor  # float64; -inf where removed
    removed_by: Tensor  # int8: place in DEFAULT_ORDER of the stage that removed the token, or NOT_REMOVED
    penalty: Tensor  # float32: change of the logit by bias, repetition, presence and frequency
    kept: list[dict[str, int]]  # a row: removing stage -> tokens left after it
    removed_mass: list[dict[str, float]]  # a row: removing stage -> raw probability it removed


def process(raw_logits: Tensor, rows: Sequence[Row]) -> Processed:
    """Run every row's active stages. `raw_logits`: (rows, vocab), any float type; each row healthy.

    At least one token of a row is always kept: a stage that would remove the last ones keeps the best of them (lowest
    id on a tie), and its count says 1.
    """
    raw = raw_logits.float()
    raw_logprobs = raw.log_softmax(dim=-1, dtype=torch.float64)
    result = Processed(
        raw_logits=raw,
        raw_logprobs=raw_logprobs,
        raw_probs=raw_logprobs.exp(),
        logits=raw.clone(),
        logprobs=raw_logprobs.clone(),
        removed_by=torch.full(raw.shape, NOT_REMOVED, dtype=torch.int8, device=raw.device),
        penalty=torch.zeros_like(raw),
        kept=[{} for _ in rows],
        removed_mass=[{} for _ in rows],
    )
    for stages, members in _groups(rows).items():
        if stages:
            _Group(result, [rows[i] for i in members], members).run(stages)
    return result


def unhealthy_rows(raw_logits: Tensor) -> list[int]:
    """The rows of (rows, vocab) that nothing can be picked from: one holding NaN or +inf, or nothing finite."""
    best = raw_logits.amax(dim=-1)  # NaN if there is one
    return [index for index, value in enumerate(best.tolist()) if not math.isfinite(value)]


def active_stages(row: Row) -> tuple[Stage, ...]:
    """The stages that this row goes through, in its order. Greedy decoding ends them where temperature stands."""
    stages: list[Stage] = []
    for stage in row.settings.order:
        if stage is Stage.TEMPERATURE and row.settings.is_greedy:
            break
        if _is_active(stage, row):
            stages.append(stage)
    return tuple(stages)


def _is_active(stage: Stage, row: Row) -> bool:
    if stage is Stage.BIAS:
        return bool(row.settings.logit_bias or row.banned_ids)
    if stage is Stage.MIN_TOKENS:
        return len(row.output_ids) < row.settings.min_tokens and bool(row.end_token_ids)
    return _is_set(stage, row.settings)


def _is_set(stage: Stage, settings: Settings) -> bool:
    conditions = {
        Stage.REPETITION: settings.repetition_penalty != 1,
        Stage.PRESENCE_FREQUENCY: settings.presence_penalty != 0 or settings.frequency_penalty != 0,
        Stage.NO_REPEAT_NGRAM: settings.no_repeat_ngram_size > 0,
        Stage.TEMPERATURE: settings.temperature != 1,
        Stage.TOP_K: settings.top_k > 0,
        Stage.TOP_P: settings.top_p < 1,
        Stage.MIN_P: settings.min_p > 0,
        Stage.TYPICAL: settings.typical_p < 1,
    }
    return conditions[stage]


def _groups(rows: Sequence[Row]) -> dict[tuple[Stage, ...], list[int]]:
    groups: dict[tuple[Stage, ...], list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(active_stages(row), []).append(index)
    return groups


class _Group:
    """Rows on their way through the same stages."""

    def __init__(self, result: Processed, rows: Sequence[Row], members: Sequence[int]) -> None:
        self._result = result
        self._rows = rows
        self._members = members
        self._index = torch.tensor(members, device=result.raw_logits.device)
        self._raw_probs = result.raw_probs[self._index]
        self._scores = result.raw_logits[self._index]
        self._is_kept = self._scores > -torch.inf
        self._removed_by = result.removed_by[self._index]
        self._penalty = result.penalty[self._index]
        self._counts: list[tuple[Stage, Tensor, Tensor]] = []  # stage, tokens left (rows,), raw mass removed (rows,)

    def run(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            if stage is Stage.TEMPERATURE:
                self._scores = truncation.temperature(self._scores, self._rows)
            if stage in _PENALTIES:
                self._change(_PENALTIES[stage](self._scores, self._rows))
            if stage in _REMOVALS and (stage is not Stage.BIAS or any(row.banned_ids for row in self._rows)):
                self._remove(stage, _REMOVALS[stage](self._scores, self._rows))
        self._finish()

    def _change(self, change: Change) -> None:
        places = (change.places.rows, change.places.token_ids)
        difference = (change.values - self._scores[places]).nan_to_num_(nan=0.0)  # -inf less -inf: no change
        self._penalty[places] = (self._penalty[places] + difference).clamp_(-FLOAT32_MAX, FLOAT32_MAX)
        self._scores[places] = change.values

    def _remove(self, stage: Stage, removed: Tensor) -> None:
        removed &= self._is_kept
        left = self._is_kept ^ removed
        if stage in _MAY_REMOVE_ALL:
            nothing_left = ~left.any(dim=-1)
            best = self._scores.argmax(dim=-1)
            left[nothing_left, best[nothing_left]] = True
            removed[nothing_left, best[nothing_left]] = False
        self._is_kept = left
        self._scores.masked_fill_(removed, -torch.inf)
        # A token is removed once, so what stands there is NOT_REMOVED.
        self._removed_by += removed.view(torch.int8) * (_CODES[stage] - NOT_REMOVED)
        self._counts.append((stage, left.sum(dim=-1), row_sums(self._raw_probs * removed)))

    def _finish(self) -> None:
        result, index = self._result, self._index
        result.logits[index] = self._scores
        result.logprobs[index] = self._scores.log_softmax(dim=-1, dtype=torch.float64)
        result.removed_by[index] = self._removed_by
        result.penalty[index] = self._penalty
        if not self._counts:
            return
        numbers = torch.stack([torch.stack([kept.double(), mass]) for _, kept, mass in self._counts]).tolist()
        for (stage, _, _), (kept, mass) in zip(self._counts, numbers, strict=True):
            for member, num_kept, removed_mass in zip(self._members, kept, mass, strict=True):
                result.kept[member][stage.value] = int(num_kept)
                result.removed_mass[member][stage.value] = removed_mass
