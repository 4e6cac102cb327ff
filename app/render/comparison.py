"""A comparison as the page knows it so far: its arms, the runs of each, and where each leaves the baseline."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from app.compare import Divergence, first_divergence
from app.render.form import changed_words
from app.render.live import RunView
from app.render.measures import MEASURES, measure, shown, values_of
from app.sweeps import Sweep
from app.token_diff import Change, changes
from models.events import Ended, Event, Started, Status, TokenPicked
from models.sampling import Settings


@dataclass(slots=True)
class Tally:
    """A run that is counted and has no column: a further seed of an arm. Its tokens keep no rivals."""

    run_id: str
    tokens: list[TokenPicked] = field(default_factory=list)
    started: Started | None = None
    ended: Ended | None = None

    def apply(self, event: Event) -> None:
        match event.payload:
            case TokenPicked() as token:
                self.tokens.append(replace(token, candidates=()))
            case Started() as started:
                self.started = started
            case Ended() as ended:
                self.ended = ended

    @property
    def state(self) -> str:
        return "ended" if self.ended else "running" if self.started else "queued"


Followed = RunView | Tally


@dataclass(slots=True)
class Arm:
    """One arm: the run of its first seed, which has the column, and those of the others by their sample index."""

    name: str
    label: str  # its settings in short
    view: RunView
    others: dict[int, Tally] = field(default_factory=dict)
    is_again: bool = False  # the baseline's settings once more under other noise: the A of an A/A pair
    divergence: Divergence | None = None
    num_compared: int = 0
    changes: list[Change] = field(default_factory=list)
    measured: dict[int, dict[str, float | None]] = field(default_factory=dict)  # by sample index

    @property
    def runs(self) -> dict[int, Followed]:
        return {0: self.view, **self.others}

    @property
    def is_over(self) -> bool:
        return all(run.ended for run in self.runs.values())

    @property
    def samples(self) -> list[dict[str, float | None]]:
        """The figures of the seeds that ended as they should; of a single seed also while it runs."""
        if not self.others:
            return list(self.measured.values())
        return [self.measured[i] for i, run in self.runs.items() if i in self.measured and _is_finished(run)]

    def values(self, key: str) -> dict[int, float]:
        """One figure by sample index, of the seeds that ended as they should."""
        runs = self.runs
        found = {i: figures[key] for i, figures in self.measured.items() if _is_finished(runs[i])}
        return {i: value for i, value in found.items() if value is not None}

    def stops(self) -> Counter[str]:
        """How often each stop reason ended a seed of this arm."""
        return Counter(run.ended.stop.reason.value for run in self.runs.values() if run.ended)

    def settle(self) -> None:
        """Take the figures of the tokens that are there now; those of an ended run are taken once."""
        for index, run in self.runs.items():
            before = self.measured.get(index)
            if before is None or before["tokens"] != len(run.tokens) or before["ttft_ms"] is None:
                self.measured[index] = measure(run)


@dataclass(slots=True)
class CompareView:
    """The arms of one comparison; every other is compared with the one at `baseline`."""

    experiment_id: str
    arms: list[Arm] = field(default_factory=list)
    baseline: int = 0
    axes: tuple[Sweep, ...] = ()  # of the grid that the arms are, if they are one
    is_shared: bool = True  # whether the arms have the same noise
    asked_baseline: int | None = None  # to be taken by whoever settles the view, between two of its turns

    @property
    def base(self) -> Arm:
        return self.arms[self.baseline]

    @property
    def shown(self) -> list[Arm]:
        """The arms with a column or a cell: all but the second of the A/A pair."""
        return [arm for arm in self.arms if not arm.is_again]

    @property
    def compared(self) -> list[Arm]:
        """Every arm that has a column, but for the baseline."""
        return [arm for arm in self.shown if arm is not self.base]

    @property
    def again(self) -> Arm | None:
        return next((arm for arm in self.arms if arm.is_again), None)

    @property
    def num_seeds(self) -> int:
        return max(len(arm.runs) for arm in self.arms)

    @property
    def num_ended(self) -> int:
        return sum(run.ended is not None for run in self.runs())

    def runs(self) -> Iterator[Followed]:
        """Every run, those of one arm together, in the order of their making."""
        for arm in self.arms:
            yield from arm.runs.values()

    def rebase(self, baseline: int) -> None:
        """Compare with another arm from now on. An index that no column has is the first."""
        self.baseline = baseline if 0 <= baseline < len(self.shown) else 0
        for arm in self.arms:
            arm.divergence, arm.num_compared, arm.changes = None, 0, []

    def take_asked_baseline(self) -> None:
        """Compare with the arm that was asked for meanwhile, if one was."""
        asked, self.asked_baseline = self.asked_baseline, None
        if asked is not None:
            self.rebase(asked)

    def update_divergence(self) -> None:
        """Look at the tokens that came since the last call; a divergence that was found stays."""
        for arm in self.compared:
            if arm.divergence is None:
                _compare(self.base.view, arm)

    def settle(self) -> None:
        """Take figures and diffs anew; costly, so not for every token."""
        self.update_divergence()
        for arm in self.arms:
            arm.settle()
        base = self.base.view
        for arm in self.compared:
            if base.ended and arm.view.ended and arm.divergence and not arm.changes:
                arm.changes = changes([t.token_id for t in base.tokens], [t.token_id for t in arm.view.tokens])

    def columns(self) -> dict[str, Any]:
        """The value of the columns: every strip with its arm's name, label, figures and place of divergence."""
        return {
            "experiment": self.experiment_id,
            "baseline": self.baseline,
            "seeds": self.num_seeds,
            "progress": self.progress(),
            "axes": [[f"{sweep.field} {value}" for value in sweep.values] for sweep in self.axes],
            "measures": [*([m.key, m.title] for m in MEASURES), ["divergence", "first divergence"]],
            "arms": [self._column(arm) for arm in self.shown],
        }

    def progress(self) -> dict[str, Any]:
        """How far all runs are: `words` for the line, `ended` of `total`."""
        states = Counter(run.state for run in self.runs())
        total, ended = states.total(), states["ended"]
        parts = [f"{ended} of {total} runs ended"]
        parts += [f"{states[s]} {word}" for s, word in (("running", "running"), ("queued", "waiting")) if states[s]]
        return {"words": ", ".join(parts), "ended": ended, "total": total}

    def _column(self, arm: Arm) -> dict[str, Any]:
        return {
            **arm.view.strip(),
            "name": arm.name,
            "label": arm.label,
            "divergence": self._position(arm),
            "changes": [[c.base_start, c.base_end, c.start, c.end] for c in arm.changes],
            "figures": {**_cells(arm), "divergence": _divergence_cell(arm)},
            "runs": [run.run_id for run in arm.runs.values()],
            "is_over": arm.is_over,
        }

    def _position(self, arm: Arm) -> int | None:
        """Where an arm leaves the baseline; for the baseline itself, where the earliest other leaves it."""
        if arm is not self.base:
            return arm.divergence.position if arm.divergence else None
        return min((a.divergence.position for a in self.compared if a.divergence), default=None)


def label_of(settings: Settings) -> str:
    """What an arm is called beside its letter: the settings that are not neutral."""
    return changed_words(settings.changed()) or "neutral"


def _cells(arm: Arm) -> dict[str, Any]:
    """Every figure as [number, text]; over several seeds the number is their mean."""
    cells = {}
    for one in MEASURES:
        values = values_of(arm.samples, one)
        mean = sum(values) / len(values) if values else None
        cells[one.key] = [mean, shown(one, mean)]
    return cells


def _divergence_cell(arm: Arm) -> list[Any]:
    position = arm.divergence.position if arm.divergence else None
    return [position, "" if position is None else f"token {position}"]


def _is_finished(run: Followed) -> bool:
    return run.ended is not None and run.ended.status is Status.FINISHED


def _compare(base: RunView, arm: Arm) -> None:
    both_ended = base.ended is not None and arm.view.ended is not None
    num_common = min(len(base.tokens), len(arm.view.tokens))
    if both_ended:
        arm.divergence = first_divergence(base.tokens, arm.view.tokens)
        return
    start, arm.num_compared = arm.num_compared, num_common
    arm.divergence = first_divergence(base.tokens[start:num_common], arm.view.tokens[start:num_common])
