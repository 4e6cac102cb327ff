"""Which runs of a comparison get a column, and under which name."""

import dataclasses
from datetime import UTC, datetime

from app.record import ExperimentDetail
from app.render.arms import compare_head, compare_view, one_run_an_arm
from models.sampling import Settings
from tests.unit.app.runs import detail


def experiment(*places: tuple[int, int]) -> ExperimentDetail:
    """A comparison whose runs stand at these (arm, seed) places; the arm's temperature is its index."""
    arms = [
        dataclasses.replace(
            detail([]), id=f"{arm}/{seed}", arm_index=arm, sample_index=seed, settings=Settings(temperature=float(arm))
        )
        for arm, seed in places
    ]
    return ExperimentDetail("e", datetime.now(UTC), "c", "the", 0, None, None, arms)


def test_an_arm_with_several_seeds_has_one_column() -> None:
    chosen = one_run_an_arm(experiment((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)))
    assert {index: run.id for index, run in chosen.items()} == {0: "0/0", 1: "1/0"}


def test_an_arm_keeps_its_name_when_another_is_gone() -> None:
    chosen = one_run_an_arm(experiment((1, 0), (2, 0)))
    view = compare_view("e", {index: (run.id, run.settings) for index, run in chosen.items()})
    assert [arm.name for arm in view.arms] == ["B", "C"]
    assert [form.get("temperature") for form in compare_head(experiment((1, 0), (2, 0)))[1]] == [None, "2"]


def test_arms_beyond_the_columns_are_counted_as_arms() -> None:
    chosen = one_run_an_arm(experiment(*[(arm, seed) for arm in range(6) for seed in range(3)]))
    view = compare_view("e", {index: (run.id, run.settings) for index, run in chosen.items()})
    assert ([arm.name for arm in view.arms], view.num_left_out) == (["A", "B", "C", "D"], 2)
