"""Coverage curves: what share of a text's tokens each truncating control permits at each of its values.

Every axis goes from tight to loose, so that every curve rises. The figures under a curve are what it says, in words and
numbers, for those who do not see it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.render.text import count, esc
from models.examination import Coverage, CurvePoint, Reach
from models.sampling import NEUTRAL, Settings

WIDTH: Final = 300
HEIGHT: Final = 96
_TIGHTEST_MIN_P: Final = 1.0
_LOOSEST_MIN_P: Final = 1e-5  # the axis ends there


@dataclass(frozen=True, slots=True)
class Axis:
    """One control: where a value lies between tight (0) and loose (1), and the values that are told in numbers."""

    control: str
    place: Callable[[float], float]
    told: tuple[float, ...]  # tight to loose
    ends: tuple[str, str]


def coverage_charts(coverage: Coverage, settings: Settings) -> str:
    """The three curves with their numbers, as HTML."""
    if not coverage.reaches:
        return ""
    loosest_k = max((reach.top_k or 1 for reach in coverage.reaches), default=1)
    axes = (
        (_top_k_axis(max(100, loosest_k)), coverage.top_k_curve),
        (Axis("top_p", lambda p: p, (0.5, 0.8, 0.9, 0.95, 0.99), ("0", "1")), coverage.top_p_curve),
        (_min_p_axis(), coverage.min_p_curve),
    )
    figures = "".join(_figure(axis, curve, coverage.reaches, settings) for axis, curve in axes)
    return (
        '<section class="dl-coverage" aria-label="Coverage"><h2>Coverage</h2>'
        f'<p class="dl-hint">How many of the {count(len(coverage.reaches), "token")} each control permits, alone: '
        f"from tight to loose.{_beforehand(coverage.reaches)}</p>"
        f'<div class="dl-curves">{figures}</div></section>'
    )


def num_permitted(reaches: Sequence[Reach], control: str, value: float) -> int:
    """How many of the tokens the control permits at this value."""
    if control == "min_p":
        return sum(reach.min_p is not None and value <= reach.min_p for reach in reaches)
    limits = [getattr(reach, control) for reach in reaches]
    return sum(limit is not None and limit <= value for limit in limits)


def _beforehand(reaches: Sequence[Reach]) -> str:
    number = sum(reach.top_k is None for reach in reaches)
    if not number:
        return ""
    verb = "is" if number == 1 else "are"
    return f" {count(number, 'token').capitalize()} {verb} impossible before any of them acts."


def _figure(axis: Axis, curve: Sequence[CurvePoint], reaches: Sequence[Reach], settings: Settings) -> str:
    own = _own(axis.control, settings)
    values = sorted({*axis.told, *own}, key=axis.place)
    told = [(value, num_permitted(reaches, axis.control, value)) for value in values]
    sentence = ", ".join(f"{axis.control} {value:g} reaches {number}" for value, number in told)
    of = f"of {count(len(reaches), 'token')}"
    marker = "".join(_marker(axis, value) for value in own)
    grid = "".join(f'<line x1="0" x2="{WIDTH}" y1="{y}" y2="{y}" class="dl-grid"/>' for y in (0.5, HEIGHT / 2))
    return (
        f'<figure data-control="{axis.control}"><figcaption>{_caption(axis.control, own, reaches)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{esc(f"{of}, {sentence}")}">{grid}{marker}<path d="{path(axis, curve)}"/></svg>'
        f'<p class="dl-ends" aria-hidden="true"><span>{axis.ends[0]}</span><span>{axis.ends[1]}</span></p>'
        f"{_table(axis.control, told, own, len(reaches))}</figure>"
    )


def path(axis: Axis, curve: Sequence[CurvePoint]) -> str:
    """The steps of a curve as an SVG path, from no token at the tight end to the loose end."""
    steps = [f"M0,{HEIGHT}"]
    for point in curve:
        x = WIDTH * min(1.0, max(0.0, axis.place(point.value)))
        steps.append(f"H{x:.1f}V{HEIGHT - (HEIGHT - 1) * point.share:.1f}")
    return "".join([*steps, f"H{WIDTH}"])


def _caption(control: str, own: Sequence[float], reaches: Sequence[Reach]) -> str:
    if not own:
        return f"<b>{control}</b>"
    number = num_permitted(reaches, control, own[0])
    return f"<b>{control} {own[0]:g}</b> reaches <b>{count(number)}</b> of {count(len(reaches), 'token')}"


def _table(control: str, told: Sequence[tuple[float, int]], own: Sequence[float], num_tokens: int) -> str:
    heads = "".join(f'<th scope="col" class="dl-num{_own_class(v, own)}">{v:g}</th>' for v, _ in told)
    shares = {n: f"{100 * n / num_tokens:.1f} %" for _, n in told}
    cells = "".join(
        f'<td class="dl-num{_own_class(v, own)}" data-value="{v:g}" title="{shares[n]}">{count(n)}</td>'
        for v, n in told
    )
    return (
        f'<table><thead><tr><th scope="row">{control}</th>{heads}</tr></thead>'
        f'<tbody><tr><th scope="row">tokens</th>{cells}</tr></tbody></table>'
    )


def _own_class(value: float, own: Sequence[float]) -> str:
    return " dl-own" if value in own else ""


def _own(control: str, settings: Settings) -> list[float]:
    """The run's own value, where it has one."""
    value: Any = getattr(settings, control)
    return [] if value == getattr(NEUTRAL, control) else [value]


def _marker(axis: Axis, value: float) -> str:
    x = WIDTH * min(1.0, max(0.0, axis.place(value)))
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HEIGHT}" class="dl-own-line"/>'


def _top_k_axis(loosest: int) -> Axis:
    told = tuple(float(k) for k in (1, 5, 10, 40, 100))
    return Axis("top_k", lambda k: math.log(max(k, 1)) / math.log(loosest), told, ("1", f"{count(loosest)}, log"))


def _min_p_axis() -> Axis:
    span = math.log(_TIGHTEST_MIN_P / _LOOSEST_MIN_P)

    def place(value: float) -> float:
        return math.log(_TIGHTEST_MIN_P / max(value, _LOOSEST_MIN_P)) / span

    return Axis("min_p", place, (0.5, 0.2, 0.1, 0.05, 0.01), ("1", f"{_LOOSEST_MIN_P:g}, log"))
