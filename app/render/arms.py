"""The arms of a comparison as the page has them: their forms, their settings, the view of a saved one."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.record import ExperimentDetail, RunDetail
from app.render.divergence import Arm, CompareView
from app.render.form import Form, changed_words, settings_of, split
from app.render.live import RunView
from app.render.panel import arm_name
from models.errors import LimitError, SettingError
from models.sampling import Settings

MAX_ARMS: Final = 4


def arms_settings(arms: Sequence[Form], budget: Form | None) -> list[Settings]:
    """The settings of every arm. Raises LimitError for too few or too many, SettingError naming arm and field."""
    if not 2 <= len(arms or ()) <= MAX_ARMS:
        raise LimitError(f"A comparison on this page has 2 to {MAX_ARMS} arms, not {len(arms or ())}.", field="arms")
    return [_arm_settings(i, {**arm, **(budget or {})}) for i, arm in enumerate(arms)]


def one_run_an_arm(detail: ExperimentDetail) -> dict[int, RunDetail]:
    """The run that stands for each arm that is still there, by the arm's index.

    With several seeds that is the first seed's: the columns share their noise.
    """
    return {arm.arm_index or 0: arm for arm in detail.arms if not arm.sample_index}


def compare_view(experiment_id: str, runs: Mapping[int, tuple[str, Settings]]) -> CompareView:
    """The view of the first arms, by their index, before any event; it says how many there are beyond them."""
    arms = [
        Arm(arm_name(index), changed_words(settings.changed()) or "neutral", RunView(run_id, settings))
        for index, (run_id, settings) in list(runs.items())[:MAX_ARMS]
    ]
    return CompareView(experiment_id, arms, num_left_out=max(0, len(runs) - MAX_ARMS))


def compare_head(detail: ExperimentDetail) -> tuple[str, list[Form], Form]:
    """A saved comparison's prompt, the forms of its arms, and the budget, which is that of the first."""
    forms = [split(arm.settings) for arm in list(one_run_an_arm(detail).values())[:MAX_ARMS]]
    return detail.prompt, [form for form, _ in forms], forms[0][1] if forms else {}


def _arm_settings(index: int, form: Mapping[str, Any]) -> Settings:
    try:
        return settings_of(form)
    except SettingError as exc:
        raise SettingError(f"Arm {arm_name(index)}: {exc.message}", field=exc.field) from exc
