"""The figures of all arms as small charts: one line an arm, the number as text and beside it as a bar.

Each chart is a table, so a screen reader reads what a sighted person sees: the drawing says nothing that its text does
not. A bar starts at 0. With several seeds a thin mark is a seed, the line the 95 % interval of their mean, and the
scale goes from the least to the largest of these numbers, as the heading says.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.render.comparison import Arm, CompareView
from app.render.ending import reason_words
from app.render.measures import MEASURES, Measure, interval_of, shown, values_of
from app.render.text import esc
from app.verdicts import Interval

WIDTH: Final = 200
HEIGHT: Final = 12
_MARGIN: Final = 3  # so that a dot at either end is whole
# Reasons with a shade of their own, in this order; what failed is one.
_SHADES: Final = ("eos", "stop_token", "stop_string", "constraint_complete", "max_tokens", "context_full", "cancelled")


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where numbers lie in a drawing; `left` may be 0 and `right` below it, as for log-probabilities."""

    left: float
    right: float

    def at(self, value: float) -> float:
        length = self.right - self.left
        share = (value - self.left) / length if length else 1.0
        return _MARGIN + (WIDTH - 2 * _MARGIN) * share


def charts(view: CompareView) -> str:
    """One chart a figure, and that of the stop reasons; nothing before a first token is there."""
    if not any(arm.measured for arm in view.arms) or not any(arm.view.tokens for arm in view.arms):
        return ""
    drawn = [figure_chart(view.arms, one) for one in MEASURES]
    drawn.insert(1, stop_chart(view.arms))
    return f'<div class="dl-charts">{"".join(drawn)}</div>'


def figure_chart(arms: Sequence[Arm], one: Measure) -> str:
    """One figure of every arm. Empty where no arm has it yet."""
    own = {arm.name: values_of(arm.samples, one) for arm in arms}
    found = {arm.name: interval_of(arm.samples, one) if arm.others else None for arm in arms}
    if not any(own.values()):
        return ""
    scale = _scale(own.values(), found.values())
    rows = "".join(
        _chart_row(arm.name, _text(one, own[arm.name], found[arm.name]), _marks(scale, own[arm.name], found[arm.name]))
        for arm in arms
    )
    ends = f" <small>{shown(one, scale.left)} to {shown(one, scale.right)}</small>" if any(found.values()) else ""
    return _chart(f"{esc(one.title)}{ends}", one.key, rows)


def stop_chart(arms: Sequence[Arm]) -> str:
    """The mix of stop reasons of every arm, as shares of one bar."""
    rows = ""
    for arm in arms:
        stops = dict(sorted(arm.stops().items(), key=lambda item: _shade(item[0])))
        words = ", ".join(f"{reason_words(r)} {n}" if arm.others else reason_words(r) for r, n in stops.items())
        rows += _chart_row(arm.name, f"<td>{esc(words)}</td>", _segments(stops, len(arm.runs)))
    return _chart("stop mix", "stops", rows)


def _chart(title: str, key: str, rows: str) -> str:
    return f'<table class="dl-chart" data-chart="{key}"><caption>{title}</caption><tbody>{rows}</tbody></table>'


def _chart_row(name: str, text_cell: str, marks: str) -> str:
    drawing = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        f"{marks}</svg>"
    )
    return f'<tr><th scope="row">{esc(name)}</th>{text_cell}<td class="dl-drawing">{drawing}</td></tr>'


def _text(one: Measure, values: Sequence[float], found: Interval | None) -> str:
    if not values:
        return '<td class="dl-num"></td>'
    mean = found.mean if found else values[0]
    span = f" <small>{shown(one, found.low)} to {shown(one, found.high)}</small>" if found else ""
    return f'<td class="dl-num" data-value="{mean!r}">{shown(one, mean)}{span}</td>'


def _scale(values: Iterable[Sequence[float]], intervals: Iterable[Interval | None]) -> _Scale:
    """From 0 for bars; where there are intervals, from the least to the largest number that is drawn."""
    numbers = [value for own in values for value in own]
    ends = [end for found in intervals if found for end in (found.low, found.high)]
    if ends:
        return _Scale(min([*numbers, *ends]), max([*numbers, *ends]))
    return _Scale(0.0, max(numbers, key=abs))


def _marks(scale: _Scale, values: Sequence[float], found: Interval | None) -> str:
    """A bar from 0 for a number alone; for several a dot each, their mean, and its interval as a line."""
    if not values:
        return ""
    if found is None:
        if scale.left:  # the others have intervals, this arm has one value as yet
            return _dot(scale, values[0])
        return f'<rect class="dl-bar-mean" x="{_MARGIN}" y="2" width="{scale.at(values[0]) - _MARGIN:.2f}" height="8"/>'
    low, mean, high = (scale.at(value) for value in (found.low, found.mean, found.high))
    line = f'<rect class="dl-whisker" x="{low:.2f}" y="5.25" width="{high - low:.2f}" height="1.5"/>'
    middle = f'<rect class="dl-whisker" x="{mean - 1:.2f}" y="1" width="2" height="10"/>'
    return "".join(_dot(scale, value) for value in values) + line + middle


def _dot(scale: _Scale, value: float) -> str:
    return f'<rect class="dl-dot" x="{scale.at(value) - 0.75:.2f}" y="3" width="1.5" height="6"/>'


def _segments(stops: Mapping[str, int], num_runs: int) -> str:
    marks, x = "", float(_MARGIN)
    for reason, number in stops.items():
        width = (WIDTH - 2 * _MARGIN) * number / num_runs
        marks += f'<rect class="dl-stop-{_shade(reason)}" x="{x:.2f}" y="2" width="{width:.2f}" height="8"/>'
        x += width
    return marks


def _shade(reason: str) -> int:
    return _SHADES.index(reason) if reason in _SHADES else len(_SHADES)
