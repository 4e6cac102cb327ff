"""From raw logits to the distribution that is picked from: the stages, in each row's own order, with an account.

A stage is written once, over a batch. Rows whose active stages are the same, in the same order, go through them
together; a neutral stage is absent. Every operation is row-wise, so a row's numbers do not depend on its neighbours.

The raw logits are never changed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from models.sampling import DEFAULT_ORDER, Settings, Stage
from workers.engine.logits import penalties, removal, truncation
from workers.engine.logits.penalties import Change, Penalty, Places
from workers.engine.logits.removal import Removal
from workers.engine.logits.rows import FLOAT32_MAX, Row, probabilities, row_counts
from workers.engine.logits.truncation import Truncation

__all__ = ["NOT_REMOVED", "Processed", "Row", "active_stages", "process", "unhealthy_rows"]

NOT_REMOVED: Final = -1

_PENALTIES: Final[dict[Stage, Penalty]] = {
    Stage.BIAS: penalties.bias,
    Stage.REPETITION: penalties.repetition,
    Stage.PRESENCE_FREQUENCY: penalties.presence_frequency,
}
_REMOVALS: Final[dict[Stage, Removal]] = {
    Stage.BIAS: removal.banned,
    Stage.NO_REPEAT_NGRAM: removal.no_repeat_ngram,
    Stage.MIN_TOKENS: removal.min_tokens,
}
_TRUNCATIONS: Final[dict[Stage, Truncation]] = {
    Stage.TOP_K: truncation.top_k,
    Stage.TOP_P: truncation.top_p,
    Stage.MIN_P: truncation.min_p,
    Stage.TYPICAL: truncation.typical,
}
_CODES: Final = {stage: code for code, stage in enumerate(DEFAULT_ORDER)}
_NUM_CODES: Final = 16  # a power of 2 above every code: NOT_REMOVED, taken modulo it, is the last


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
    members = _members(rows)
    groups = []
    for (stages, _), indices in members.items():
        parts = [raw, raw_logprobs, raw_probs]
        if len(members) > 1:  # a lone group takes the tensors themselves, and a neutral one gives them back
            index = torch.tensor(indices, device=raw.device)
            parts = [tensor[index] for tensor in parts]
        group = _Group(*parts, rows=[rows[i] for i in indices])
        group.run(stages)
        groups.append(group)
    return _assemble(raw, raw_logprobs, raw_probs, groups, [i for indices in members.values() for i in indices])


def _assemble(
    raw: Tensor, raw_logprobs: Tensor, raw_probs: Tensor, groups: Sequence["_Group"], members: Sequence[int]
) -> Processed:
    """The groups' results in the order of the batch; `members` are the batch's rows in the order of the groups."""
    order = sorted(range(len(members)), key=members.__getitem__)
    index = torch.tensor(order, device=raw.device)

    def together(tensors: list[Tensor]) -> Tensor:
        return tensors[0] if len(tensors) == 1 else torch.cat(tensors)[index]

    kept = [numbers for group in groups for numbers in group.kept]
    removed_mass = [numbers for group in groups for numbers in group.removed_mass]
    return Processed(
        raw_logits=raw,
        raw_logprobs=raw_logprobs,
        raw_probs=raw_probs,
        logits=together([group.logits for group in groups]),
        logprobs=together([group.logprobs for group in groups]),
        removed_by=together([group.removed_by for group in groups]),
        penalty=together([group.penalty for group in groups]),
        kept=[kept[i] for i in order],
        removed_mass=[removed_mass[i] for i in order],
    )


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


def _members(rows: Sequence[Row]) -> dict[tuple[tuple[Stage, ...], bool], list[int]]:
    """The rows' indices by what they go through: active stages, and whether `bias` has ids to remove."""
    members: dict[tuple[tuple[Stage, ...], bool], list[int]] = {}
    for index, row in enumerate(rows):
        members.setdefault((active_stages(row), bool(row.banned_ids)), []).append(index)
    return members


class _Group:
    """Rows on their way through the same stages. Attributes of the same name as Processed's hold the group's part."""

    def __init__(self, raw: Tensor, raw_logprobs: Tensor, raw_probs: Tensor, *, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._raw_probs = raw_probs
        self._num_left: dict[Stage, Tensor] = {}  # removing stage -> tokens left after it (rows,)
        self.logits = raw
        self.logprobs = raw_logprobs
        self.removed_by = torch.full(raw.shape, NOT_REMOVED, dtype=torch.int8, device=raw.device)
        self.penalty = torch.zeros_like(raw)
        self.kept: list[dict[str, int]] = [{} for _ in rows]
        self.removed_mass: list[dict[str, float]] = [{} for _ in rows]

    def run(self, stages: Sequence[Stage]) -> None:
        """Go through the stages, once."""
        if not stages:
            return
        self.logits = self.logits.clone()
        self._is_kept = self.logits > -torch.inf
        for stage in stages:
            if stage is Stage.TEMPERATURE:
                self.logits = truncation.temperature(self.logits, self._rows)
            if stage in _PENALTIES:
                self._change(_PENALTIES[stage](self.logits, self._rows))
            if stage in _REMOVALS and (stage is not Stage.BIAS or self._rows[0].banned_ids):
                self._remove(stage, _REMOVALS[stage](self.logits, self._rows))
            if stage in _TRUNCATIONS:
                self._truncate(stage, _TRUNCATIONS[stage](self.logits, self._rows))
        self.logprobs = self.logits.log_softmax(dim=-1, dtype=torch.float64)
        if self._num_left:
            self._account()

    def _change(self, change: Change) -> None:
        places = (change.places.rows, change.places.token_ids)
        difference = (change.values - self.logits[places]).nan_to_num_(nan=0.0)  # -inf less -inf: no change
        self.penalty[places] = (self.penalty[places] + difference).clamp_(-FLOAT32_MAX, FLOAT32_MAX)
        self.logits[places] = change.values

    def _remove(self, stage: Stage, removed: Places) -> None:
        """Take single tokens away; where they are all that is left of a row, all but the best of them."""
        left = self._is_kept.clone()
        left[removed.rows, removed.token_ids] = False
        is_empty = row_counts(left) == 0
        if bool(is_empty.any()):
            left[is_empty, self.logits.argmax(dim=-1)[is_empty]] = True  # argmax: the first of equals
        self._truncate(stage, self._is_kept ^ left)

    def _truncate(self, stage: Stage, removed: Tensor) -> None:
        """Take away what `removed` (rows, vocab) marks; never all that is left of a row."""
        removed &= self._is_kept
        self._is_kept ^= removed
        self.logits.masked_fill_(removed, -torch.inf)
        self.removed_by.masked_fill_(removed, _CODES[stage])
        self._num_left[stage] = row_counts(self._is_kept)

    def _account(self) -> None:
        """Tell for each row what its stages left and removed."""
        codes = [_CODES[stage] for stage in self._num_left]
        masses = self._raw_probs.new_zeros((len(self._rows), _NUM_CODES))
        masses.scatter_add_(1, (self.removed_by & (_NUM_CODES - 1)).long(), self._raw_probs)
        numbers = torch.stack([*self._num_left.values(), *masses[:, codes].unbind(1)]).tolist()
        for stage, kept, mass in zip(self._num_left, numbers[: len(codes)], numbers[len(codes) :], strict=True):
            for row_kept, row_mass, num_kept, removed in zip(self.kept, self.removed_mass, kept, mass, strict=True):
                row_kept[stage.value] = int(num_kept)
                row_mass[stage.value] = removed
