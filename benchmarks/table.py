"""The table of README.md, made from benchmarks/results.json.

    python -m benchmarks.table

What stands between the two marker comments is replaced; all else is left alone.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.measure import Measure, Report, read_results, shown

README = Path(__file__).parent.parent / "README.md"
BEGIN = "<!-- benchmarks: python -m benchmarks.table -->"
END = "<!-- benchmarks: end -->"


def main() -> None:
    text = README.read_text(encoding="utf-8")
    README.write_text(with_table(text, table(read_results())), encoding="utf-8")


def with_table(text: str, made: str) -> str:
    """`text` with `made` between the markers. Raises ValueError where these do not stand there once, in order."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the text needs {BEGIN} and {END} after it, each once")
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    return f"{before}{BEGIN}\n{made}\n{after}"


def table(reports: Mapping[str, Report]) -> str:
    """The machine and a line for each measure, those of the long report last."""
    return "\n".join(lines(reports))


def lines(reports: Mapping[str, Report]) -> Iterator[str]:
    machine = reports["bench"].machine
    yield (
        f"{machine['checkpoint']}, {machine['dtype']} unless said otherwise, {machine['threads']} threads of "
        f"{machine['cpu']}; torch {machine['torch']}, transformers {machine['transformers']}, numba {machine['numba']}."
    )
    yield ""
    yield "| measure | median | smallest to largest | bound | |"
    yield "|---|---:|---:|---:|---|"
    for name in ("bench", "long"):
        if name in reports:
            yield from map(line, reports[name].measures)


def line(measure: Measure) -> str:
    unit = "" if measure.unit == "x" else f" {measure.unit}"
    bound = f"{measure.bound.direction} {shown(measure.bound.number)}{unit}" if measure.bound else ""
    spread = f"{shown(measure.low)} to {shown(measure.high)}"
    return f"| {measure.name} | {shown(measure.value)}{unit} | {spread} | {bound} | {measure.verdict} |"


if __name__ == "__main__":
    main()
