"""From raw logits to the distribution that is picked from: the stages, in each row's own order, with an account.

A stage is written once, over a batch. Rows whose active stages are the same, in the same order, go through them
together; a neutral stage is absent. Every operation is row-wise, so a row's numbers do not depend on its neighbours.

The raw logits are never changed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from models.sampling import DEFAULT_ORDER, Settings, Stage
from workers.engine.logits import penalties, removal, truncation
from workers.engine.logits.penalties import Change, Penalty
from workers.engine.logits.rows import FLOAT32_MAX, Row, probabilities, row_counts

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
    raw_probs = probabilities(raw_logprobs)
    result = Processed(
        raw_logits=raw,
        raw_logprobs=raw_logprobs,
        raw_probs=raw_probs,
        logits=raw,
        logprobs=raw_logprobs,
        removed_by=torch.full(raw.shape, NOT_REMOVED, dtype=torch.int8, device=raw.device),
        penalty=torch.zeros_like(raw),
        kept=[{} for _ in rows],
        removed_mass=[{} for _ in rows],
    )
    groups = _groups(rows)
    if not any(stages for stages, _ in groups):
        return result
    # Every row has its own place in these copies; a lone group fills them without moving anything.
    result = replace(result, logits=raw.clone(), logprobs=raw_logprobs.clone())
    for stages, members in groups:
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


def _groups(rows: Sequence[Row]) -> list[tuple[tuple[Stage, ...], list[int]]]:
    """The rows' indices by what they go through; rows with and without banned ids differ in what `bias` does."""
    groups: dict[tuple[tuple[Stage, ...], bool], list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault((active_stages(row), bool(row.banned_ids)), []).append(index)
    return [(stages, members) for (stages, _), members in groups.items()]


class _Group:
    """Rows on their way through the same stages. A group of all rows works in the result's own memory."""

    def __init__(self, result: Processed, rows: Sequence[Row], members: Sequence[int]) -> None:
        is_everyone = len(members) == result.logits.shape[0]
        self._result = result
        self._rows = rows
        self._members = members
        self._index = slice(None) if is_everyone else torch.tensor(members, device=result.logits.device)
        self._raw_probs = result.raw_probs[self._index]
        self._scores = result.logits[self._index]
        self._is_kept = self._scores > -torch.inf
        self._removed_by = result.removed_by[self._index]
        self._penalty = result.penalty[self._index]
        self._num_left: dict[Stage, Tensor] = {}  # removing stage -> tokens left after it (rows,)

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
        self._is_kept ^= removed
        num_left = row_counts(self._is_kept)
        if stage in _MAY_REMOVE_ALL and bool((num_left == 0).any()):
            self._take_back_the_best(removed, num_left == 0)
            num_left = num_left.clamp_min(1)
        self._scores.masked_fill_(removed, -torch.inf)
        # A token is removed once, so what stands there is NOT_REMOVED.
        self._removed_by += removed.view(torch.int8) * (_CODES[stage] - NOT_REMOVED)
        self._num_left[stage] = num_left

    def _take_back_the_best(self, removed: Tensor, is_empty: Tensor) -> None:
        best = self._scores.argmax(dim=-1)[is_empty]  # the first of equals
        self._is_kept[is_empty, best] = True
        removed[is_empty, best] = False

    def _finish(self) -> None:
        result, index = self._result, self._index
        result.logits[index] = self._scores
        result.logprobs[index] = self._scores.log_softmax(dim=-1, dtype=torch.float64)
        result.removed_by[index] = self._removed_by
        result.penalty[index] = self._penalty
        if self._num_left:
            self._account()

    def _account(self) -> None:
        """Tell for each row what its stages left and removed."""
        stage_of = self._removed_by.long() - NOT_REMOVED  # 0 where not removed
        masses = self._raw_probs.new_zeros((len(self._rows), len(_CODES) + 1))
        masses.scatter_add_(1, stage_of, self._raw_probs)
        codes = [_CODES[stage] - NOT_REMOVED for stage in self._num_left]
        numbers = torch.stack([*self._num_left.values(), *masses[:, codes].unbind(1)]).tolist()
        for stage, kept, mass in zip(self._num_left, numbers[: len(codes)], numbers[len(codes) :], strict=True):
            for member, num_kept, removed_mass in zip(self._members, kept, mass, strict=True):
                self._result.kept[member][stage.value] = int(num_kept)
                self._result.removed_mass[member][stage.value] = removed_mass
