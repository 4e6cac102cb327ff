"""One measured number, the bound it is held to, and how a set of them is kept."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

RESULTS = Path(__file__).with_name("results.json")


class Direction(StrEnum):
    """Which side of its bound a value must be on; the bound itself is met."""

    AT_LEAST = ">="
    AT_MOST = "<="

    def holds(self, value: float, bound: float) -> bool:
        return value >= bound if self is Direction.AT_LEAST else value <= bound


@dataclass(frozen=True, slots=True)
class Bound:
    """What a value is held to."""

    direction: Direction
    number: float

    def __str__(self) -> str:
        return f"{self.direction} {self.number:g}"


def at_least(number: float) -> Bound:
    return Bound(Direction.AT_LEAST, number)


def at_most(number: float) -> Bound:
    return Bound(Direction.AT_MOST, number)


@dataclass(frozen=True, slots=True)
class Measure:
    """The median of several values of one kind, the smallest and the largest of them, and the bound."""

    name: str
    value: float
    low: float
    high: float
    unit: str  # "x" for a ratio
    bound: Bound | None = None  # None for what is only shown
    detail: str = ""  # the numbers behind it

    @classmethod
    def of(
        cls, name: str, values: Sequence[float], *, unit: str = "x", bound: Bound | None = None, detail: str = ""
    ) -> Self:
        """Numbers are kept to four digits, and the bound is held against those."""
        value, low, high = (float(f"{v:.4g}") for v in (statistics.median(values), min(values), max(values)))
        return cls(name, value, low, high, unit, bound, detail)

    @property
    def is_met(self) -> bool | None:
        return None if self.bound is None else self.bound.direction.holds(self.value, self.bound.number)

    @property
    def verdict(self) -> str:
        return {None: "", True: "met", False: "MISSED"}[self.is_met]

    def __str__(self) -> str:
        bound = f"   {self.bound}: {self.verdict}" if self.bound else ""
        spread = f"{shown(self.value)} {self.unit} ({shown(self.low)} to {shown(self.high)})"
        return f"{self.name}: {spread}{bound}" + (f"\n    {self.detail}" if self.detail else "")

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "is_met": self.is_met}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `as_dict`. Raises ValueError for a verdict that the numbers do not give."""
        fields = {name: value for name, value in values.items() if name != "is_met"}
        bound = fields["bound"]
        if bound is not None:
            fields["bound"] = Bound(Direction(bound["direction"]), bound["number"])
        measure = cls(**fields)
        if measure.is_met is not values["is_met"]:
            raise ValueError(f"{measure.name}: is_met is {values['is_met']}, which its value and bound do not give")
        return measure


@dataclass(frozen=True, slots=True)
class Report:
    """What one run of the benchmarks found, and where: `machine` as of `benchmarks.machine.facts`."""

    machine: dict[str, Any]
    measures: tuple[Measure, ...]

    def updated(self, later: "Report") -> "Report":
        """This one with the measures of `later` in the place of those with the same names, new ones at the end.

        Raises ValueError for one from another machine or of other versions.
        """
        if later.machine != self.machine:
            raise ValueError(f"what is kept was measured elsewhere: {self.machine}; run all of it here")
        measures = {measure.name: measure for measure in (*self.measures, *later.measures)}
        return Report(self.machine, tuple(measures.values()))

    def as_dict(self) -> dict[str, Any]:
        return {"machine": self.machine, "measures": [measure.as_dict() for measure in self.measures]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return cls(values["machine"], tuple(Measure.from_dict(measure) for measure in values["measures"]))


def read_results(path: Path = RESULTS) -> dict[str, Report]:
    """The kept reports by name: "bench" of `make bench`, "long" of what takes minutes. Empty where nothing is kept."""
    if not path.exists():
        return {}
    return {name: Report.from_dict(values) for name, values in json.loads(path.read_text(encoding="utf-8")).items()}


def write_report(name: str, report: Report, path: Path = RESULTS) -> None:
    """Replace one report; the others stay."""
    reports = {**read_results(path), name: report}
    text = json.dumps({key: kept.as_dict() for key, kept in sorted(reports.items())}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def timed(action: Callable[[], object]) -> float:
    """Seconds that `action` takes."""
    began_s = time.perf_counter()
    action()
    return time.perf_counter() - began_s


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Pair by pair, as neighbours in time share the machine's mood."""
    return [a / b for a, b in zip(above, below, strict=True)]


def shown(number: float) -> str:
    """Three digits, and all before the point."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
