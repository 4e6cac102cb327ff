"""From raw logits to the distribution that is picked from: the stages, in each row's own order, with an account.

A stage is written once, over a batch. Rows whose active stages are the same, in the same order, go through them
together; a neutral stage is absent. Every operation is row-wise, so a row's numbers do not depend on its neighbours.

The raw logits are never changed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final

import torch
from torch import Tensor

from models.errors import NumericalError
from models.events import Tax
from models.sampling import Settings, Stage
from workers.engine.logits.distribution import Distribution
from workers.engine.logits.group import NOT_REMOVED, Group
from workers.engine.logits.rows import Row

__all__ = ["NOT_REMOVED", "Processed", "Row", "active_stages", "process", "unhealthy_rows"]


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
    """Run every row's active stages. `raw_logits`: (rows, vocab), any float type.

    At least one token of a row is always kept: a stage that would remove the last ones keeps the best of them (lowest
    id on a tie), and its count says 1. A constraint alone never keeps what it forbids: where earlier stages have left
    nothing that it allows, it brings back the token with the largest raw logit of those that it does.

    Raises NumericalError where a row is not healthy (see `unhealthy_rows`), and ConstraintError where the raw logits
    rule out every token that a row's constraint allows.
    """
    raw = Distribution.of(raw_logits.float())
    if not raw.is_healthy:
        raise NumericalError("the checkpoint gave NaN or nothing finite")
    members = _members(rows)
    groups = []
    for (stages, _), indices in members.items():
        part = raw if len(members) == 1 else _rows_of(raw, indices)
        groups.append(Group(part, [rows[i] for i in indices]))
        groups[-1].run(stages)
    return _assemble(raw, groups, [i for indices in members.values() for i in indices])


def _rows_of(distribution: Distribution, indices: list[int]) -> Distribution:
    index = torch.tensor(indices, device=distribution.logits.device)
    return Distribution(*(getattr(distribution, field.name)[index] for field in fields(distribution)))


def _assemble(raw: Distribution, groups: Sequence[Group], members: Sequence[int]) -> Processed:
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
    return _IS_SET[stage](row.settings)


_IS_SET: Final[dict[Stage, Callable[[Settings], bool]]] = {
    Stage.CONSTRAINT: lambda settings: settings.constraint is not None,
    Stage.REPETITION: lambda settings: settings.repetition_penalty != 1,
    Stage.PRESENCE_FREQUENCY: lambda settings: settings.presence_penalty != 0 or settings.frequency_penalty != 0,
    Stage.NO_REPEAT_NGRAM: lambda settings: settings.no_repeat_ngram_size > 0,
    Stage.TEMPERATURE: lambda settings: settings.temperature != 1,
    Stage.TOP_K: lambda settings: settings.top_k > 0,
    Stage.TOP_P: lambda settings: settings.top_p < 1,
    Stage.MIN_P: lambda settings: settings.min_p > 0,
    Stage.TYPICAL: lambda settings: settings.typical_p < 1,
}


def _members(rows: Sequence[Row]) -> dict[tuple[tuple[Stage, ...], bool], list[int]]:
    """The rows' indices by what they go through: active stages, and whether `bias` has ids to remove."""
    members: dict[tuple[tuple[Stage, ...], bool], list[int]] = {}
    for index, row in enumerate(rows):
        members.setdefault((active_stages(row), bool(row.banned_ids)), []).append(index)
    return members
