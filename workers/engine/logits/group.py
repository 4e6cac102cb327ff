"""Rows on their way through the same stages, with the account of what each stage did."""

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from models.errors import ConstraintError
from models.events import Tax
from models.sampling import DEFAULT_ORDER, Stage
from workers.engine.kernels import compiled
from workers.engine.kernels.cutting import take_away
from workers.engine.logits import constraint, penalties, removal, truncation
from workers.engine.logits.distribution import Distribution
from workers.engine.logits.penalties import Change, Penalty, Places
from workers.engine.logits.removal import Removal
from workers.engine.logits.rows import FLOAT32_MAX, Row, row_counts
from workers.engine.logits.truncation import Truncation

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


def _all(number: float, like: Tensor, dtype: torch.dtype) -> Tensor:
    """One number for every token, to be read only: it takes no memory until it is made `contiguous`."""
    return torch.full((1, 1), number, dtype=dtype, device=like.device).expand(like.shape)


class Group:
    """Rows on their way through the same stages. Attributes of the same name as Processed's hold the group's part."""

    def __init__(self, raw: Distribution, rows: Sequence[Row]) -> None:
        self._raw = raw
        self._rows = rows
        self._num_left: dict[Stage, Tensor] = {}  # removing stage -> tokens left after it (rows,)
        self._mass: dict[Stage, Tensor] = {}  # removing stage -> raw probability it removed (rows,)
        self._mass_left = torch.ones_like(raw.total)  # raw probability of what is kept (rows,)
        self.logits = raw.logits
        self.removed_by = _all(NOT_REMOVED, raw.logits, torch.int8)
        self.penalty = _all(0.0, raw.logits, torch.float32)
        self.kept: list[dict[str, int]] = [{} for _ in rows]
        self.removed_mass: list[dict[str, float]] = [{} for _ in rows]
        self.tax: list[Tax | None] = [None for _ in rows]

    def run(self, stages: Sequence[Stage]) -> None:
        """Go through the stages, once."""
        if not stages:
            return
        if stages[0] is not Stage.TEMPERATURE:  # which makes new ones
            self.logits = self.logits.clone()
        self.removed_by = self.removed_by.contiguous()
        if any(stage in _PENALTIES for stage in stages):
            self.penalty = self.penalty.contiguous()
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
        self._record(stage, row_counts(self._is_kept), self._mass_left - self._raw.mass_at(rows, token_ids))

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
        if self.penalty.is_contiguous():
            self.penalty[row, best] = 0
        self._mass_left[row] += self._raw.weights[row, best].double() / self._raw.total[row]

    def _truncate(self, stage: Stage, removed: Tensor) -> None:
        """Take away what `removed` (rows, vocab) marks; never all that is left of a row."""
        if compiled.is_for(removed):
            num_left, weight_left = take_away(
                removed.numpy(),
                self._is_kept.numpy(),
                self.logits.numpy(),
                self.removed_by.numpy(),
                code=_CODES[stage],
                weights=self._raw.weights.numpy(),
            )
            self._record(stage, torch.from_numpy(num_left), torch.from_numpy(weight_left) / self._raw.total)
            return
        removed &= self._is_kept
        self._is_kept ^= removed
        self.logits.masked_fill_(removed, -torch.inf)
        self.removed_by.masked_fill_(removed, _CODES[stage])
        self._record(stage, row_counts(self._is_kept), self._raw.mass(self._is_kept))

    def _record(self, stage: Stage, num_left: Tensor, mass_left: Tensor) -> None:
        self._num_left[stage] = num_left
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
