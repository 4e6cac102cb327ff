"""The stage `constraint` on four tokens, worked by hand: what it removes, what it brings back, what it costs."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from models.errors import ConstraintError
from models.events import Tax
from models.sampling import DEFAULT_ORDER
from tests.unit.engine_numbers.rows import entries, kept_ids, logits_of, probabilities, row
from workers.engine.logits.pipeline import Row, active_stages, process

P = (0.5, 0.25, 0.15, 0.1)
LATE = [*(stage for stage in DEFAULT_ORDER if stage != "constraint"), "constraint"]


def constrained(allowed: list[int], size: int = 4, **settings: Any) -> Row:
    mask = np.zeros(size, dtype=bool)
    mask[allowed] = True
    values = row({"constraint": {"regex": "whatever"}, **settings})
    return Row(values.settings, [], [], values.banned_ids, allowed=mask)


def test_what_is_forbidden_is_removed_and_the_rest_is_renormalised() -> None:
    processed = process(logits_of(*P), [constrained([1, 3])])
    assert probabilities(processed) == pytest.approx([0, 0.25 / 0.35, 0, 0.1 / 0.35])
    assert processed.kept == [{"constraint": 2}]
    assert processed.removed_mass[0]["constraint"] == pytest.approx(0.65)
    (entry,) = entries(logits_of(*P), [constrained([1, 3], alternatives=4)])
    assert [c.removed_by for c in entry.candidates] == ["constraint", None, "constraint", None]


@pytest.mark.parametrize(
    ("allowed", "tax"),
    [
        ([0, 1, 2, 3], Tax(0.0, None)),
        ([0, 1], Tax(round(-math.log2(0.75), 6), None)),
        ([1], Tax(2.0, 0)),  # a quarter is left, and the favourite is gone
        ([1, 3], Tax(round(-math.log2(0.35), 6), 0)),
    ],
)
def test_the_tax_by_hand(allowed: list[int], tax: Tax) -> None:
    (entry,) = entries(logits_of(*P), [constrained(allowed)])
    assert entry.tax is not None
    assert (entry.tax.bits, entry.tax.displaced) == (pytest.approx(tax.bits, abs=2e-6), tax.displaced)


def test_the_tax_of_what_no_sum_of_probabilities_can_hold() -> None:
    (entry,) = entries(torch.tensor([[0.0, -3000.0, -9000.0, -9000.0]]), [constrained([1])])
    assert entry.tax == Tax(round(3000 / math.log(2), 6), 0)
    assert entry.token_id == 1


def test_other_settings_do_not_change_the_tax() -> None:
    (entry,) = entries(logits_of(*P), [constrained([1, 3], banned=[1], temperature=0.2, logit_bias={"3": 5.0})])
    assert entry.tax is not None
    assert entry.tax.bits == pytest.approx(-math.log2(0.35), abs=2e-6)


def test_without_a_constraint_there_is_no_tax() -> None:
    one, other = entries(logits_of(*P).repeat(2, 1), [row({"top_k": 2}), constrained([2])])
    assert one.tax is None
    assert other.tax is not None


def test_a_ban_on_all_that_is_allowed_gives_way() -> None:
    """A constraint never keeps what it forbids; of what it allows, the raw favourite comes back."""
    processed = process(logits_of(*P), [constrained([1, 2], banned=[1, 2])])
    assert kept_ids(processed) == [1]
    assert processed.kept == [{"bias": 2, "constraint": 1}]
    assert processed.removed_by[0].tolist() == [1, -1, 0, 1]  # bias is stage 0, constraint stage 1


def test_behind_other_stages_it_still_decides() -> None:
    processed = process(logits_of(*P), [constrained([2, 3], top_k=1, order=LATE)])
    assert kept_ids(processed) == [2]
    assert processed.kept == [{"top_k": 1, "constraint": 1}]
    assert kept_ids(process(logits_of(*P), [constrained([0, 3], top_k=3, order=LATE)])) == [0]


def test_the_account_of_what_comes_back() -> None:
    """It is as if no stage had touched it; what the constraint takes for it is told in full."""
    processed = process(logits_of(*P), [constrained([0], banned=[0], logit_bias={"0": 3.0, "1": 1.0})])
    assert processed.removed_mass[0] == pytest.approx({"bias": 0.5, "constraint": 0.5})
    assert processed.final.logits[0, 0] == pytest.approx(math.log(0.5))
    assert processed.penalty[0].tolist() == [0, 1, 0, 0]


def test_what_the_checkpoint_rules_out_does_not_come_back() -> None:
    with pytest.raises(ConstraintError, match="no probability"):
        process(logits_of(0.5, 0.5, 0, 0), [constrained([2, 3])])


def test_greedy_takes_the_best_of_what_is_allowed() -> None:
    (entry,) = entries(logits_of(*P), [constrained([2, 3], temperature=0)])
    assert (entry.token_id, entry.logprob < 0) == (2, True)
    assert active_stages(constrained([2, 3], temperature=0)) == ("constraint",)


def test_a_row_that_does_not_say_what_is_allowed_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"Row\.allowed"):
        process(logits_of(*P), [row({"constraint": {"regex": "a"}})])


def test_rows_with_different_masks_do_not_touch_each_other() -> None:
    logits = torch.randn(3, 64, generator=torch.Generator().manual_seed(5))
    rows = [constrained([1, 5, 9], 64), constrained([2], 64), constrained(list(range(40)), 64, top_p=0.5)]
    together = process(logits, rows)
    for index, one in enumerate(rows):
        alone = process(logits[index : index + 1], [one])
        assert torch.equal(together.final.logits[index], alone.final.logits[0])
        assert together.kept[index] == alone.kept[0]
        assert together.tax[index] == alone.tax[0]
