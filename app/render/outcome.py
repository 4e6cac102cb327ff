"""What a comparison comes to, as HTML: where arms leave the baseline, verdicts over seeds, the table of figures."""

from collections.abc import Sequence
from typing import Final

from app.compare import explain
from app.render.comparison import Arm, CompareView
from app.render.ending import reason_words
from app.render.form import differing_words
from app.render.measures import JUDGED, MEASURES, Measure, interval_of, shown, values_of
from app.render.text import decimal, esc
from app.verdicts import Difference, Verdict, verdict

MAX_COLUMNS: Final = 4  # arms that stand side by side, and have a sentence each


def outcome(view: CompareView) -> str:
    """Sentences, verdicts and table of a view that is settled."""
    return f'<div class="dl-outcome">{_sentences(view)}{_verdicts(view)}{table(view)}</div>'


def sentence(base: Arm, arm: Arm, *, verb: str = "leaves") -> str:
    """Where `arm` leaves the baseline and why, with the button that opens both ledgers there."""
    if arm.divergence is not None:
        words = esc(explain(arm.divergence, a=base.name, b=arm.name))
        return (
            f'<p class="dl-divergence"><b>{esc(arm.name)}</b>{_apart(base, arm)} {verb} {esc(base.name)}. {words} '
            f"{ledgers_button(arm, 'both ledgers')}</p>"
        )
    same = "is the same, token for token, as" if arm.view.ended and base.view.ended else "is so far the same as"
    return f'<p class="dl-divergence dl-soft"><b>{esc(arm.name)}</b> {same} {esc(base.name)}.</p>'


def _apart(base: Arm, arm: Arm) -> str:
    """The controls that may have parted the two; nothing where the settings are the same or not known."""
    if base.view.settings is None or arm.view.settings is None:
        return ""
    words = differing_words(arm.view.settings, base.view.settings)
    return f", with {esc(words)}," if words else ""


def ledgers_button(arm: Arm, words: str) -> str:
    """Opens the ledgers of the baseline and of `arm` at the divergence; nothing where one of them had ended there."""
    found = arm.divergence
    if found is None or found.a is None or found.b is None:
        return esc(words) if words.startswith("token") else ""
    return (
        f'<button type="button" class="dl-link" data-ledgers="{esc(arm.view.run_id)}" '
        f'aria-label="ledgers of the baseline and of {esc(arm.name)} at token {found.position}">{esc(words)}</button>'
    )


def table(view: CompareView) -> str:
    """One line an arm, every figure of it with its exact value in `data-value`."""
    heads = "".join(f'<th class="dl-num" scope="col">{esc(m.title)}</th>' for m in MEASURES)
    rows = "".join(_row(view, arm) for arm in view.arms)
    caption = _caption(view)
    return (
        '<div class="dl-scroll" tabindex="0" role="group" aria-label="table of figures">'
        f'<table class="dl-table">{caption}<thead><tr><th scope="col">arm</th><th scope="col">settings</th>'
        f'<th scope="col">leaves {esc(view.base.name)}</th><th scope="col">stop</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def stop_words(arm: Arm) -> str:
    """The stop reasons of an arm's seeds, the most frequent first: `end token 12, max_tokens 4`. Plain text."""
    stops = arm.stops()
    if not arm.others:
        return next((reason_words(reason) for reason in stops), "")
    return ", ".join(f"{reason_words(reason)} {number}" for reason, number in stops.most_common())


def _caption(view: CompareView) -> str:
    if view.num_seeds == 1:
        return ""
    return f"<caption>{view.num_seeds} seeds an arm: means, each ± half of its 95 % interval</caption>"


def _row(view: CompareView, arm: Arm) -> str:
    leaves = "" if arm is view.base or arm.is_again else _leaves(arm)
    stop = esc(stop_words(arm)) or f'<span class="dl-soft">{esc(arm.view.state)}</span>'
    numbers = "".join(_cell(arm, one) for one in MEASURES)
    return (
        f'<tr data-arm="{esc(arm.name)}"><th scope="row">{esc(arm.name)}</th><td>{esc(arm.label)}</td>'
        f"<td>{leaves}</td><td>{stop}</td>{numbers}</tr>"
    )


def _leaves(arm: Arm) -> str:
    if arm.divergence is not None:
        return ledgers_button(arm, f"token {arm.divergence.position}")
    return '<span class="dl-soft">same</span>' if arm.view.ended else ""


def _cell(arm: Arm, one: Measure) -> str:
    values = values_of(arm.samples, one)
    if not values:
        return '<td class="dl-num"></td>'
    found = interval_of(arm.samples, one) if arm.others else None
    mean = found.mean if found else values[0]
    half = f' <span class="dl-soft">± {_half(one, found.high - found.mean)}</span>' if found else ""
    return f'<td class="dl-num" data-value="{mean!r}">{shown(one, mean)}{half}</td>'


def _half(one: Measure, half: float) -> str:
    return decimal(half, one.digits or (0 if one.is_time else 1))


def _sentences(view: CompareView) -> str:
    if view.num_seeds == 1:
        return _partings(view)
    return f'<p class="dl-divergence dl-soft">The texts are those of the first seed.</p>{_partings(view)}'


def _partings(view: CompareView) -> str:
    arms = view.compared
    if len(arms) < MAX_COLUMNS:
        return "".join(sentence(view.base, arm) for arm in arms)
    parted = [arm for arm in arms if arm.divergence is not None]
    if not parted:
        words = "are the same, token for token" if all(a.view.ended for a in view.shown) else "are so far the same"
        return f'<p class="dl-divergence dl-soft">All {len(arms) + 1} arms {words}.</p>'
    first = min(parted, key=lambda arm: arm.divergence.position if arm.divergence else 0)
    count = f'<p class="dl-divergence dl-soft">{len(parted)} of {len(arms)} arms leave {esc(view.base.name)}.</p>'
    return count + sentence(view.base, first, verb="is the first that leaves")


def _verdicts(view: CompareView) -> str:
    if view.num_seeds == 1:
        return ""
    num_arms = len(view.compared)
    lines = [_verdict_line(arm.name, view.base.name, judged(view.base, arm, num_arms)) for arm in view.compared]
    if view.again is not None:
        lines.append(_again_line(view, num_arms))
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f'<ul class="dl-verdicts" aria-label="verdicts over seeds">{items}</ul>'


def judged(base: Arm, arm: Arm, num_arms: int) -> Verdict:
    """The verdict over the figures by which arms are compared."""
    figures = [{one.key: side.values(one.key) for one in JUDGED} for side in (base, arm)]
    return verdict(figures[0], figures[1], num_arms=num_arms)


def _verdict_line(name: str, base: str, found: Verdict) -> str:
    pair = f"<b>{esc(name)}</b> and {esc(base)}"
    if found.n < 2:
        return f'<span class="dl-soft">{pair}: fewer than two seeds have ended in both, so there is no verdict.</span>'
    if not found.is_distinct:
        return f"{pair} are not distinguishable at n = {found.n}: {_told(found.differences, is_distinct=False)}"
    same = _told(found.differences, is_distinct=False)
    rest = f" Not distinguishable: {same}" if same else ""
    return f"{pair} differ at n = {found.n}: {_told(found.differences, is_distinct=True)}{rest}"


def _again_line(view: CompareView, num_arms: int) -> str:
    """The A/A pair: what the same settings do under other noise."""
    first, again = view.arms[0], view.again
    assert again is not None
    found = judged(first, again, num_arms)
    pair = f"A/A pair, <b>{esc(first.name)}</b> against itself with other noise"
    if found.n < 2:
        return f'<span class="dl-soft">{pair}: no verdict yet.</span>'
    if found.is_distinct:
        return (
            f"{pair}: differs at n = {found.n}, {_told(found.differences, is_distinct=True)} Chance alone did that, so "
            "differences of this size mean nothing here; take more seeds."
        )
    return (
        f"{pair}: not distinguishable at n = {found.n}, as it should be: {_told(found.differences, is_distinct=False)}"
    )


def _told(differences: Sequence[Difference], *, is_distinct: bool) -> str:
    """`tokens +3.1 (−0.8 to 7.0), …` of the figures that differ, or of those that do not."""
    chosen = [d for d in differences if d.is_distinct is is_distinct]
    parts = [_difference(one, d) for d in chosen for one in JUDGED if one.key == d.figure and d.interval]
    return ", ".join(parts) + "." if parts else ""


def _difference(one: Measure, difference: Difference) -> str:
    found = difference.interval
    assert found is not None
    digits = 3 if one.digits else 1
    mean, low, high = (decimal(v, digits, signed=True) for v in (found.mean, found.low, found.high))
    return f'{esc(one.title)} <span class="dl-num" data-value="{found.mean!r}">{mean} ({low} to {high})</span>'
