"""What the page's form asks for, and the view and the form of a saved comparison."""

import dataclasses
from datetime import UTC, datetime

import pytest

from app.record import ExperimentDetail
from app.render.arms import Plan, compare_head, left_behind, one_run_an_arm, plan_of, planned_view, saved_view
from app.render.panel import arm_name
from app.sweeps import Sweep
from models.errors import LimitError, SettingError
from models.sampling import Settings
from tests.unit.app.runs import detail, token

BUDGET = {"seed": "7", "max_tokens": "16"}


def experiment(*runs: tuple[int, int, Settings]) -> ExperimentDetail:
    """A comparison whose runs stand at these (arm, seed) places."""
    arms = [
        dataclasses.replace(
            detail([token(0, 5)], run_id=f"{arm}/{seed}"), arm_index=arm, sample_index=seed, settings=settings
        )
        for arm, seed, settings in runs
    ]
    return ExperimentDetail("e", datetime.now(UTC), "c", "the", 0, None, None, arms)


def at(*places: tuple[int, int]) -> ExperimentDetail:
    """The arm's temperature is its index."""
    return experiment(*[(arm, seed, Settings(temperature=float(arm), seed=1)) for arm, seed in places])


def saved(plan: Plan) -> ExperimentDetail:
    """The plan as it would be saved."""
    return experiment(
        *[(i, seed, arm) for i, arm in enumerate(plan.arms) for seed in range(plan.seeds)],
    )


def test_arms_are_named_like_columns_of_a_sheet() -> None:
    assert [arm_name(i) for i in (0, 25, 26, 27, 51, 52, 63)] == ["A", "Z", "AA", "AB", "AZ", "BA", "BL"]


def test_arms_by_hand_share_the_budget() -> None:
    plan = plan_of({"arms": [{"temperature": "0.2"}, {}]}, BUDGET)
    assert plan == Plan([Settings(temperature=0.2, seed=7, max_tokens=16), Settings(seed=7, max_tokens=16)], 1, False)


def test_a_sweep_goes_out_from_the_first_arm() -> None:
    asked = {
        "arms": [{"min_p": "0.1", "top_k": "9"}],
        "sweep": [["temperature", "0, 0.5..1 step 0.5"], ["top_k", "5, 10"]],
    }
    arms = plan_of(asked, BUDGET).arms
    assert [(a.temperature, a.top_k) for a in arms] == [(0, 5), (0, 10), (0.5, 5), (0.5, 10), (1, 5), (1, 10)]
    assert {(a.min_p, a.seed, a.max_tokens) for a in arms} == {(0.1, 7, 16)}


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({}, LimitError, "2 to 64 arms, not 0"),
        ({"arms": [{}]}, LimitError, "not 1; add one or a sweep"),
        ({"arms": [{}] * 65}, LimitError, "not 65"),
        ({"arms": [{}, {"top_p": "2"}]}, SettingError, "Arm B: top_p: input should be less than or equal to 1, got 2"),
        ({"arms": [{}], "sweep": [["top_p", "0.5, 2"]]}, SettingError, "Sweep, top_p 2: top_p: input should be less"),
        ({"arms": [{}], "sweep": [["top_k", "5, hot"]]}, SettingError, "Sweep, top_k hot: top_k: 'hot' is not a whole"),
        ({"arms": [{}], "sweep": [["stop", "a, b"]]}, SettingError, "a sweep over 'stop' is not possible"),
        ({"arms": [{}], "sweep": [["top_k", ""]]}, SettingError, "sweep of top_k: it has no values"),
        ({"arms": [{}, {}], "seeds": "many"}, SettingError, "seeds: 'many' is not a whole number"),
        ({"arms": [{}] * 64, "seeds": "2"}, LimitError, "65 arms of 64. Take one arm away, or one seed"),
    ],
)
def test_a_wrong_plan_is_refused_by_name(asked: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words.replace("(", r"\(").replace(")", r"\)")):
        plan_of(asked, BUDGET)


def test_noise_of_ones_own_differs_from_arm_to_arm_and_stays() -> None:
    asked = {"arms": [{}, {}, {}], "noise": "own"}
    seeds = [arm.seed for arm in plan_of(asked, BUDGET).arms]
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    assert seeds == [arm.seed for arm in plan_of(asked, BUDGET).arms]


def test_several_seeds_bring_the_first_arm_once_more() -> None:
    plan = plan_of({"arms": [{"top_k": "3"}, {}], "seeds": "4"}, BUDGET)
    assert (plan.seeds, plan.has_again, len(plan.arms)) == (4, True, 3)
    assert plan.arms[2].seed not in (None, 7)
    assert plan.arms[2].with_changes(seed=7) == plan.arms[0]


def test_a_planned_view_has_the_runs_arm_by_arm() -> None:
    plan = plan_of({"arms": [{}, {}], "seeds": "2"}, BUDGET)
    view = planned_view("e", list("abcdef"), plan)
    assert [[run.run_id for run in arm.runs.values()] for arm in view.arms] == [["a", "b"], ["c", "d"], ["e", "f"]]
    assert [arm.name for arm in view.arms] == ["A", "B", "A/A"]
    assert [arm.name for arm in view.shown] == ["A", "B"]
    assert (view.again, view.is_shared) == (view.arms[2], True)


def test_an_arm_with_several_seeds_has_one_column() -> None:
    chosen = one_run_an_arm(at((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)))
    assert {index: run.id for index, run in chosen.items()} == {0: "0/0", 1: "1/0"}


def test_an_arm_keeps_its_name_when_another_is_gone() -> None:
    there = at((1, 0), (2, 0), (3, 1))
    assert [arm.name for arm in saved_view(there).arms] == ["B", "C"]
    assert [form.get("temperature") for form in compare_head(there)[1]["arms"]] == [None, "2"]


def test_a_saved_view_has_every_event() -> None:
    view = saved_view(at((0, 0), (0, 1), (1, 0), (1, 1)))
    assert [[len(run.tokens) for run in arm.runs.values()] for arm in view.arms] == [[1, 1], [1, 1]]
    assert view.num_ended == 4
    assert view.progress()["words"] == "4 of 4 runs ended"
    assert [arm.measured[1]["tokens"] for arm in view.arms] == [1, 1]


def test_a_baseline_that_is_none_is_the_first() -> None:
    assert [saved_view(at((0, 0), (1, 0)), baseline).baseline for baseline in (1, 2, -1)] == [1, 0, 0]


def test_what_arms_do_not_have_of_the_runs_that_they_start_from_is_said() -> None:
    one = detail([token(0, 5)], run_id="one")
    branch = dataclasses.replace(one, id="two", fork_position=1, opening_ids=(5, 6))
    assert left_behind([one, one]) == ""
    assert "Run two is a branch" in left_behind([one, branch])
    assert left_behind([dataclasses.replace(one, prompt="x"), branch]).startswith("These runs have 2 prompts")


ASKED = [
    {"arms": [{"temperature": "0.2"}, {"temperature": "1.2"}], "sweep": [], "seeds": "1", "noise": ""},
    {"arms": [{}, {"top_k": "3"}], "sweep": [], "seeds": "3", "noise": "own"},
    {
        "arms": [{"min_p": "0.1"}],
        "sweep": [["temperature", "0.2, 0.7, 2"], ["top_k", "0, 5"]],
        "seeds": "2",
        "noise": "",
    },
    {
        "arms": [{}],
        "sweep": [["early_stopping", "false, true, never"], ["num_beams", "2, 3"]],
        "seeds": "1",
        "noise": "",
    },
    {"arms": [{}], "sweep": [["top_p", "0.5, 0.6, 0.7, 0.8, 0.9"]], "seeds": "1", "noise": ""},
]


@pytest.mark.parametrize("asked", ASKED)
def test_a_saved_comparison_asks_for_itself_again(asked: dict) -> None:
    plan = plan_of(asked, BUDGET)
    assert compare_head(saved(plan)) == ("the", asked, BUDGET)
    view = saved_view(saved(plan))
    assert view.axes == planned_view("e", ["r"] * len(plan.arms) * plan.seeds, plan).axes
    assert (view.again is not None, view.is_shared) == (plan.has_again, asked["noise"] == "")
    if asked["sweep"]:
        assert view.axes == tuple(Sweep(field, tuple(text.split(", "))) for field, text in asked["sweep"])
