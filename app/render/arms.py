"""What the page asks for and what is saved, as one another: the form of a comparison, its runs, its view."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.record import ExperimentDetail, RunDetail
from app.render.comparison import Arm, CompareView, Tally, label_of
from app.render.controls import CONTROLS
from app.render.form import Form, form_of, neutral_text, settings_of, split
from app.render.live import RunView
from app.render.panel import arm_name
from app.sweeps import MAX_ARMS, Sweep, axes_of, grid, parse_sweep
from models.errors import LimitError, SettingError
from models.sampling import Settings, derived_seed

SWEPT_KINDS: Final = ("number", "integer", "choice", "flag")
AGAIN_LABEL: Final = "A once more, other noise"
_NUM_HAND_ARMS: Final = 4  # up to here a saved sweep over one control is shown as arms by hand

Head = tuple[str, dict[str, Any], Form]
"""What a comparison begins with: prompt, the arms' form (see `plan_of`), budget."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The arms that a form asks for, and how often each is run. The last may be the first once more (A/A)."""

    arms: list[Settings]
    seeds: int
    has_again: bool


def plan_of(asked: Mapping[str, Any] | None, budget: Form) -> Plan:
    """The plan of the arms' form and the budget, which has a seed.

    `asked` is `{"arms": [form, ...], "sweep": [[field, values], ...], "seeds": "1", "noise": "" or "own"}`; a sweep
    goes out from the first arm alone. Raises SettingError naming arm or sweep and field, LimitError.
    """
    asked = asked or {}
    seeds = _num_seeds(str(asked.get("seeds") or "1"))
    sweeps = [parse_sweep(_swept(field), str(text)) for field, text in asked.get("sweep") or () if field]
    forms = list(asked.get("arms") or ())
    arms = _swept_arms({**(forms or [{}])[0], **budget}, sweeps) if sweeps else _hand_arms(forms, budget)
    if asked.get("noise") == "own":
        arms = [arms[0], *(_with_own_noise(arm, f"arm {i}") for i, arm in enumerate(arms[1:], start=1))]
    if seeds == 1:
        return Plan(arms, seeds, has_again=False)
    if len(arms) == MAX_ARMS:
        raise LimitError(
            f"With several seeds the first arm is run once more under other noise, as the A/A pair; that makes "
            f"{MAX_ARMS + 1} arms of {MAX_ARMS}. Take one arm away, or one seed.",
            field="arms",
        )
    return Plan([*arms, _with_own_noise(arms[0], "again")], seeds, has_again=True)


def planned_view(experiment_id: str, run_ids: Sequence[str], plan: Plan) -> CompareView:
    """The view of a comparison that was just submitted: `plan.seeds` runs an arm, arm by arm."""
    by_arm = [run_ids[i * plan.seeds : (i + 1) * plan.seeds] for i in range(len(plan.arms))]
    arms = [
        Arm(arm_name(i), label_of(settings), RunView(ids[0], settings), {s: Tally(ids[s]) for s in range(1, len(ids))})
        for i, (settings, ids) in enumerate(zip(plan.arms, by_arm, strict=True))
    ]
    return _view(experiment_id, arms, plan.arms, has_again=plan.has_again)


def saved_view(detail: ExperimentDetail, baseline: int = 0) -> CompareView:
    """The view of a saved comparison, with every event that is saved; settled."""
    firsts = one_run_an_arm(detail)
    settings = [run.settings for run in firsts.values()]
    has_again = _ends_with_again(settings, has_seeds=len(detail.arms) > len(firsts))
    arms = [Arm(arm_name(i), label_of(run.settings), RunView(run.id, run.settings)) for i, run in firsts.items()]
    by_index = dict(zip(firsts, arms, strict=True))
    for run in detail.arms:
        arm = by_index.get(run.arm_index or 0)
        if arm is None:
            continue  # its first seed was deleted
        sample = run.sample_index or 0
        followed = arm.others.setdefault(sample, Tally(run.id)) if sample else arm.view
        for event in run.events:
            followed.apply(event)
    view = _view(detail.id, arms, settings, has_again=has_again)
    view.rebase(baseline)
    view.settle()
    return view


def one_run_an_arm(detail: ExperimentDetail) -> dict[int, RunDetail]:
    """The run that has the column of each arm that is still there, by the arm's index: that of the first seed."""
    return {run.arm_index or 0: run for run in detail.arms if not run.sample_index}


def compare_head(detail: ExperimentDetail) -> Head:
    """A saved comparison's prompt, the form of its arms, and the budget, which is that of the first arm."""
    settings = [run.settings for run in one_run_an_arm(detail).values()]
    seeds = len({run.sample_index or 0 for run in detail.arms})
    if _ends_with_again(settings, has_seeds=seeds > 1):
        settings = settings[:-1]
    axes = _axes(settings)
    is_sweep = len(axes) == 2 or (bool(axes) and len(settings) > _NUM_HAND_ARMS)
    forms = [split(one) for one in settings]
    arms = [form for form, _ in forms]
    if is_sweep:
        swept = {axis.field for axis in axes}
        arms = [{field: text for field, text in arms[0].items() if field not in swept}]
    asked = {
        "arms": arms,
        "sweep": [[axis.field, ", ".join(axis.values)] for axis in axes] if is_sweep else [],
        "seeds": str(seeds),
        "noise": "" if _is_shared(settings) else "own",
    }
    return detail.prompt, asked, forms[0][1] if forms else {}


def head_from(runs: Sequence[RunDetail]) -> Head:
    """The same for a comparison that starts from saved runs, an arm each; a run alone is both of its first arms.

    Prompt and budget are those of the first run.
    """
    forms = [split(run.settings) for run in runs]
    arms = [form for form, _ in forms]
    asked = {"arms": arms if len(arms) > 1 else arms * 2, "sweep": [], "seeds": "1", "noise": ""}
    return runs[0].prompt, asked, forms[0][1]


def left_behind(runs: Sequence[RunDetail]) -> str:
    """What arms that start from these runs do not have of them, in a sentence; nothing where they have all of it."""
    words = []
    num_prompts = len({run.prompt for run in runs})
    if num_prompts > 1:
        words.append(f"These runs have {num_prompts} prompts; the arms take that of the first.")
    for run in runs:
        if run.fork_position is not None:
            words.append(
                f"Run {run.id} is a branch; its arm has its settings, and begins at the prompt, not with the tokens "
                "that the branch was given."
            )
    return " ".join(words)


def swept_controls() -> list[str]:
    """The controls that a sweep may be over, in the order of the panel."""
    return [field for field, control in CONTROLS.items() if control.kind in SWEPT_KINDS and field != "seed"]


def _view(experiment_id: str, arms: list[Arm], settings: Sequence[Settings], *, has_again: bool) -> CompareView:
    if has_again:
        arms[-1].is_again, arms[-1].name, arms[-1].label = True, "A/A", AGAIN_LABEL
    shown = settings[:-1] if has_again else settings
    axes = _axes(shown)
    if axes:
        # What an arm of a sweep is: the swept values, neutral ones too, and nothing that all arms have.
        for arm, values in zip(arms, grid(axes), strict=False):
            arm.label = ", ".join(f"{field} {value}" for field, value in values.items())
    return CompareView(experiment_id, arms, axes=axes, is_shared=_is_shared(shown))


def _hand_arms(forms: Sequence[Form], budget: Form) -> list[Settings]:
    if not 2 <= len(forms) <= MAX_ARMS:
        raise LimitError(f"A comparison has 2 to {MAX_ARMS} arms, not {len(forms)}; add one or a sweep.", field="arms")
    return [_settings({**form, **budget}, f"Arm {arm_name(i)}") for i, form in enumerate(forms)]


def _swept_arms(form: Mapping[str, Any], sweeps: Sequence[Sweep]) -> list[Settings]:
    return [
        _settings({**form, **changed}, f"Sweep, {', '.join(f'{f} {v[:20]}' for f, v in changed.items())}")
        for changed in grid(sweeps)
    ]


def _settings(form: Mapping[str, Any], place: str) -> Settings:
    try:
        return settings_of(form)
    except SettingError as exc:
        raise SettingError(f"{place}: {exc.message}", field=exc.field) from exc


def _swept(field: Any) -> str:
    if field not in swept_controls():
        raise SettingError(f"a sweep over {str(field)[:40]!r} is not possible", field="sweep")
    return str(field)


def _num_seeds(text: str) -> int:
    try:
        return int(text)
    except ValueError as exc:
        raise SettingError(f"seeds: {text.strip()[:80]!r} is not a whole number", field="seeds") from exc


def _with_own_noise(settings: Settings, place: str) -> Settings:
    """The settings under a seed that follows from theirs and `place`, so that a link or a rerun has the same noise."""
    return settings.with_changes(seed=derived_seed(settings.seed or 0, place))


def _is_shared(settings: Sequence[Settings]) -> bool:
    return len({one.seed for one in settings}) <= 1


def _ends_with_again(settings: Sequence[Settings], *, has_seeds: bool) -> bool:
    """Whether the last of saved arms is the first once more."""
    if not has_seeds or len(settings) < 3:
        return False
    return settings[-1] == _with_own_noise(settings[0], "again")


def _axes(settings: Sequence[Settings]) -> tuple[Sweep, ...]:
    """The sweeps whose grid the arms are; their controls take text on one line."""
    neutral = {field: neutral_text(field) for field in CONTROLS if field != "seed"}
    arms = [{**neutral, **{f: t for f, t in form_of(one).items() if f in neutral}} for one in settings]
    axes = axes_of(arms)
    return axes if all(axis.field in swept_controls() for axis in axes) else ()
