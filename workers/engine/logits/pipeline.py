"""From raw logits to the distribution that is picked from: the stages, in each row's own order, with an account.

A stage is written once, over a batch. Rows whose active stages are the same, in the same order, go through them
together; a neutral stage is absent. Every operation is row-wise, so a row's numbers do not depend on its neighbours.

The raw logits are never changed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import torch
from torch import Tensor

from models.errors import ConstraintError
from models.events import Tax
from models.sampling import DEFAULT_ORDER, Settings, Stage
from workers.engine.logits import constraint, penalties, removal, truncation
from workers.engine.logits.distribution import Distribution
from workers.engine.logits.penalties import Change, Penalty, Places
from workers.engine.logits.removal import Removal
from workers.engine.logits.rows import FLOAT32_MAX, Row, row_counts
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


@dataclass(frozen=True, slots=True)
class Processed:
    """Both distributions of a batch, and what each stage did. Tensors are (rows, vocab), on the logits' device.

    Where a row has no active stage, its processed numbers are its raw ones, bit for bit; where none has, `final` is
    `raw`.
    """

    raw: Distribution
    final: Distribution  # after the last stage; minus infinity where removed
    removed_by: Tensor  # int8: place in DEFAULT_ORDER of the stage that removed the token, or NOT_REMOVED
    penalty: Tensor  # float32: change of the logit by bias, repetition, presence and frequency
    kept: list[dict[str, int]]  # a row: removing stage -> tokens left after it
    removed_mass: list[dict[str, float]]  # a row: removing stage -> raw probability it removed
    tax: list[Tax | None]  # a row: what its constraint took, where it has one

    @property
    def raw_logprobs(self) -> Tensor:
        """(rows, vocab) float64, computed at each call."""
        return self.raw.logprobs

    @property
    def logprobs(self) -> Tensor:
        """(rows, vocab) float64, computed at each call; minus infinity where removed."""
        return self.final.logprobs

    def of_rows(self, indices: list[int]) -> "Processed":
        """Some rows, in the order of `indices`; one may come several times."""
        index = torch.tensor(indices, device=self.removed_by.device)
        raw = _rows_of(self.raw, indices)
        return Processed(
            raw=raw,
            final=raw if self.final is self.raw else _rows_of(self.final, indices),
            removed_by=self.removed_by[index],
            penalty=self.penalty[index],
            kept=[self.kept[i] for i in indices],
            removed_mass=[self.removed_mass[i] for i in indices],
            tax=[self.tax[i] for i in indices],
        )


def process(raw_logits: Tensor, rows: Sequence[Row]) -> Processed:
    """Run every row's active stages. `raw_logits`: (rows, vocab), any float type; each row healthy.

    At least one token of a row is always kept: a stage that would remove the last ones keeps the best of them (lowest
    id on a tie), and its count says 1. A constraint alone never keeps what it forbids: where earlier stages have left
    nothing that it allows, it brings back the token with the largest raw logit of those that it does.

    Raises ConstraintError where the raw logits rule out every token that a row's constraint allows.
    """
    raw = Distribution.of(raw_logits.float())
    members = _members(rows)
    groups = []
    for (stages, _), indices in members.items():
        part = raw if len(members) == 1 else _rows_of(raw, indices)
        groups.append(_Group(part, [rows[i] for i in indices]))
        groups[-1].run(stages)
    return _assemble(raw, groups, [i for indices in members.values() for i in indices])


def _rows_of(distribution: Distribution, indices: list[int]) -> Distribution:
    index = torch.tensor(indices, device=distribution.logits.device)
    return Distribution(*(getattr(distribution, field.name)[index] for field in fields(distribution)))


def _assemble(raw: Distribution, groups: Sequence["_Group"], members: Sequence[int]) -> Processed:
    """The groups' results in the order of the batch; `members` are the batch's rows in the order of the groups."""
    order = sorted(range(len(members)), key=members.__getitem__)
    index = torch.tensor(order, device=raw.logits.device)

    def together(tensors: list[Tensor]) -> Tensor:
        return tensors[0] if len(tensors) == 1 else torch.cat(tensors)[index]

    logits = together([group.logits for group in groups])
    kept = [numbers for group in groups for numbers in group.kept]
    removed_mass = [numbers for group in groups for numbers in group.removed_mass]
    tax = [bits for group in groups for bits in group.tax]
    return Processed(
        raw=raw,
        final=raw if logits is raw.logits else Distribution.of(logits),
        removed_by=together([group.removed_by for group in groups]),
        penalty=together([group.penalty for group in groups]),
        kept=[kept[i] for i in order],
        removed_mass=[removed_mass[i] for i in order],
        tax=[tax[i] for i in order],
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
        Stage.CONSTRAINT: settings.constraint is not None,
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

    def __init__(self, raw: Distribution, rows: Sequence[Row]) -> None:
        self._raw = raw
        self._rows = rows
        self._num_left: dict[Stage, Tensor] = {}  # removing stage -> tokens left after it (rows,)
        self._mass: dict[Stage, Tensor] = {}  # removing stage -> raw probability it removed (rows,)
        self._mass_left = torch.ones_like(raw.total)  # raw probability of what is kept (rows,)
        self.logits = raw.logits
        self.removed_by = torch.full(raw.logits.shape, NOT_REMOVED, dtype=torch.int8, device=raw.logits.device)
        self.penalty = torch.zeros_like(raw.logits)
        self.kept: list[dict[str, int]] = [{} for _ in rows]
        self.removed_mass: list[dict[str, float]] = [{} for _ in rows]
        self.tax: list[Tax | None] = [None for _ in rows]

    def run(self, stages: Sequence[Stage]) -> None:
        """Go through the stages, once."""
        if not stages:
            return
        self.logits = self.logits.clone()
        self._is_kept = self.logits > -torch.inf
        for stage in stages:
            self._pass(stage)
        if self._num_left:
            self._account()

    def _pass(self, stage: Stage) -> None:
        if stage is Stage.TEMPERATURE:
            self.logits = truncation.temperature(self.logits, self._rows)
        if stage is Stage.CONSTRAINT:
            self._constrain()
        if stage in _PENALTIES:
            self._change(_PENALTIES[stage](self.logits, self._rows))
        if stage in _REMOVALS and (stage is not Stage.BIAS or self._rows[0].banned_ids):
            self._remove(stage, _REMOVALS[stage](self.logits, self._rows))
        if stage in _TRUNCATIONS:
            self._truncate(stage, _TRUNCATIONS[stage](self.logits, self._rows))

    def _change(self, change: Change) -> None:
        places = (change.places.rows, change.places.token_ids)
        difference = (change.values - self.logits[places]).nan_to_num_(nan=0.0)  # -inf less -inf: no change
        self.penalty[places] = (self.penalty[places] + difference).clamp_(-FLOAT32_MAX, FLOAT32_MAX)
        self.logits[places] = change.values

    def _remove(self, stage: Stage, places: Places) -> None:
        """Take single tokens away; where they are all that is left of a row, all but the best of them."""
        was_kept = self._is_kept[places.rows, places.token_ids]
        self._is_kept[places.rows, places.token_ids] = False
        is_empty = row_counts(self._is_kept) == 0
        if bool(is_empty.any()):
            self._is_kept[is_empty, self.logits.argmax(dim=-1)[is_empty]] = True  # argmax: the first of equals
        is_gone = was_kept & ~self._is_kept[places.rows, places.token_ids]
        rows, token_ids = places.rows[is_gone], places.token_ids[is_gone]
        self.logits[rows, token_ids] = -torch.inf
        self.removed_by[rows, token_ids] = _CODES[stage]
        self._record(stage, self._mass_left - self._raw.mass_at(rows, token_ids))

    def _constrain(self) -> None:
        """Take away what the rows' constraints forbid; where that is all that is left, bring back what they allow."""
        allowed = constraint.allowed(self._rows, self.logits)
        self.tax = constraint.taxes(self._raw, allowed)
        is_empty = row_counts(self._is_kept & allowed) == 0
        for row in is_empty.nonzero().flatten().tolist():
            self._bring_back(row, allowed[row])
        self._truncate(Stage.CONSTRAINT, ~allowed)

    def _bring_back(self, row: int, allowed: Tensor) -> None:
        raw = self._raw.logits[row].masked_fill(~allowed, -torch.inf)
        best = int(raw.argmax())  # the first of equals
        if not math.isfinite(float(raw[best])):
            raise ConstraintError(constraint.RULED_OUT)
        self._is_kept[row, best] = True
        self.logits[row, best] = raw[best]
        self.removed_by[row, best] = NOT_REMOVED
        self.penalty[row, best] = 0
        self._mass_left[row] += self._raw.weights[row, best].double() / self._raw.total[row]

    def _truncate(self, stage: Stage, removed: Tensor) -> None:
        """Take away what `removed` (rows, vocab) marks; never all that is left of a row."""
        removed &= self._is_kept
        self._is_kept ^= removed
        self.logits.masked_fill_(removed, -torch.inf)
        self.removed_by.masked_fill_(removed, _CODES[stage])
        self._record(stage, self._raw.mass(self._is_kept))

    def _record(self, stage: Stage, mass_left: Tensor) -> None:
        self._num_left[stage] = row_counts(self._is_kept)
        self._mass[stage] = (self._mass_left - mass_left).clamp_min(0.0)
        self._mass_left = mass_left

    def _account(self) -> None:
        """Tell for each row what its stages left and removed."""
        numbers = torch.stack([*self._num_left.values(), *self._mass.values()]).tolist()  # one transfer
        num_stages = len(self._num_left)
        for stage, kept, mass in zip(self._num_left, numbers[:num_stages], numbers[num_stages:], strict=True):
            for row_kept, row_mass, num_kept, removed in zip(self.kept, self.removed_mass, kept, mass, strict=True):
                row_kept[stage.value] = int(num_kept)
                row_mass[stage.value] = removed
