"""What is measured is kept, and README.md shows what is kept."""

from pathlib import Path

import pytest

from benchmarks.measure import Bound, Direction, Measure, Report, at_least, at_most, read_results, write_report
from benchmarks.table import BEGIN, END, README, table, with_table

MACHINE = {
    "checkpoint": "tiny",
    "dtype": "float32",
    "cpu": "a processor",
    "threads": 2,
    "torch": "1",
    "transformers": "2",
    "numba": "3",
}


def test_the_readme_shows_the_kept_results() -> None:
    text = README.read_text(encoding="utf-8")
    assert with_table(text, table(read_results())) == text, "run: python -m benchmarks.table"


def test_a_measure_is_the_median_with_smallest_and_largest() -> None:
    measure = Measure.of("a", [3.0, 1.0, 2.0])
    assert (measure.value, measure.low, measure.high) == (2.0, 1.0, 3.0)
    assert measure.is_met is None


@pytest.mark.parametrize(
    ("bound", "value", "is_met"),
    [
        (at_least(1.2), 1.2, True),
        (at_least(1.2), 1.199, False),
        (at_most(4), 4.0, True),
        (at_most(4), 4.001, False),
    ],
)
def test_a_bound_itself_is_met(bound: Bound, value: float, is_met: bool) -> None:
    assert Measure.of("a", [value], bound=bound).is_met is is_met


def test_reports_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    bench = Report(MACHINE, (Measure.of("a", [1, 2], bound=at_least(1)), Measure.of("b", [5], unit="ms", detail="c")))
    late = Report(MACHINE, (Measure.of("d", [1.01], bound=at_most(1.05)),))
    assert read_results(path) == {}
    write_report("long", late, path)
    write_report("bench", bench, path)
    assert read_results(path) == {"bench": bench, "long": late}


def test_a_verdict_that_the_numbers_do_not_give_is_refused() -> None:
    values = Measure.of("a", [1.0], bound=Bound(Direction.AT_LEAST, 2)).as_dict()
    with pytest.raises(ValueError, match="a: is_met is True"):
        Measure.from_dict({**values, "is_met": True})


def test_a_part_that_is_measured_again_replaces_its_own_measures() -> None:
    kept = Report(MACHINE, (Measure.of("a", [1]), Measure.of("b", [2])))
    later = Report(MACHINE, (Measure.of("a", [3]), Measure.of("c", [4])))
    assert [(m.name, m.value) for m in kept.updated(later).measures] == [("a", 3), ("b", 2), ("c", 4)]
    with pytest.raises(ValueError, match="measured elsewhere"):
        kept.updated(Report({**MACHINE, "threads": 4}, ()))


def test_only_what_is_between_the_markers_changes() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    made = table({"bench": Report(MACHINE, (Measure.of("a", [1.5, 1.25, 1.75], bound=at_least(1.2)),))})
    changed = with_table(text, made)
    assert changed.startswith(f"before\n{BEGIN}\n")
    assert changed.endswith(f"\n{END}\nafter\n")
    assert "| a | 1.5 | 1.25 to 1.75 | >= 1.2 | met |" in changed
    assert with_table(changed, made) == changed


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}{END}"])
def test_a_text_without_its_markers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="each once"):
        with_table(text, "")
