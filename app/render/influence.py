"""What the controls did to a run, and what its cache changed, in words with their numbers."""

from collections.abc import Sequence
from typing import Final

from app.render.form import changed_words
from app.render.text import count, esc
from models.examination import CacheCheck, ControlInfluence, Influence
from models.sampling import Settings

# What rounding explains, in nats: how far a parallel pass and single steps came apart, with room (docs/scoring.md).
ROUNDING: Final = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.02}
_MAX_NAMED: Final = 8


def influence_words(influence: Influence, settings: Settings, *, is_scored: bool = False, num_given: int = 0) -> str:
    """`top_p acted on 31 of 212 tokens and changed 4 picks`, a line for each active control, as HTML.

    `num_given`: how many of the tokens a branch was given, and did not pick.
    """
    if not influence.controls:
        return '<p class="dl-hint">Every control is neutral: nothing stood between the checkpoint and the pick.</p>'
    rows = "".join(_row(control, influence.num_positions, settings, is_scored) for control in influence.controls)
    given = ""
    if num_given:
        num_picked = influence.num_positions - num_given
        words = f"This branch was given {count(num_given, 'token')} and picked {count(num_picked)}."
        given = f'<p class="dl-hint">{words}</p>'
    return f'<table class="dl-influence"><tbody>{rows}</tbody></table>{given}{_idle(influence.idle)}'


def _row(control: ControlInfluence, num_positions: int, settings: Settings, is_scored: bool) -> str:
    share = 100 * control.num_changed / num_positions if num_positions else 0.0
    bar = f'<span class="dl-bar dl-bar-processed" aria-hidden="true"><i style="width:{share:.1f}%"></i></span>'
    idle = ' class="dl-idle"' if control.did_nothing else ""
    return (
        f'<tr{idle} data-control="{esc(control.control)}" data-changed="{control.num_changed}" '
        f'data-decided="{control.num_decided}"><th scope="row">{esc(_with_value(control.control, settings))}</th>'
        f"<td>{bar if control.num_changed else ''}</td><td>{_acted(control, num_positions, is_scored)}</td></tr>"
    )


def _with_value(control: str, settings: Settings) -> str:
    return changed_words({control: settings.as_dict()[control]}) or control


def _acted(control: ControlInfluence, num_positions: int, is_scored: bool) -> str:
    if control.did_nothing:
        return "never acted"
    acted = f"acted on <b>{count(control.num_changed)}</b> of {count(num_positions, 'token')}"
    if is_scored:
        return acted
    if not control.num_decided:
        return f"{acted} and changed no pick"
    return f"{acted} and changed <b>{count(control.num_decided)}</b> {'pick' if control.num_decided == 1 else 'picks'}"


def _idle(idle: Sequence[str]) -> str:
    if not idle:
        return ""
    return f'<p class="dl-hint">Without {esc(" and ".join(idle))} the run is the same, token for token.</p>'


def cache_check_words(check: CacheCheck, *, dtype: str | None) -> str:
    """The verdict, with the largest difference and where it is, as HTML."""
    if not check.num_checked or check.largest_at is None:
        return '<p class="dl-hint">The run has no token to check.</p>'
    over = f"{count(check.num_checked)} of {count(check.num_positions, 'token')}, the whole vocabulary each"
    where = (
        f"Largest difference of a log-probability: <b>{check.largest_difference:.1e}</b> nats, "
        f'at <button type="button" class="dl-link" data-goto="{check.largest_at}">token {check.largest_at}</button> '
        f'<span class="dl-soft">({over})</span>.'
    )
    verdict, kind = _verdict(check, dtype)
    return f'<p class="dl-verdict" data-verdict="{kind}">{verdict} {where}</p>{_changed_picks(check.changed_picks)}'


def _verdict(check: CacheCheck, dtype: str | None) -> tuple[str, str]:
    limit = ROUNDING.get(dtype or "", ROUNDING["float32"])
    if check.changed_picks:
        verb = "is" if len(check.changed_picks) == 1 else "are"
        number = count(len(check.changed_picks), "pick")
        return f"<b>Without the cache {number} {verb} another.</b>", "changed"
    if check.largest_difference > limit:
        return f"<b>Every pick is the same, but rounding in {esc(dtype or 'float32')} does not explain this.</b>", "far"
    return "<b>The cache changes nothing but the last digits.</b> Every pick is the same without it.", "same"


def _changed_picks(positions: Sequence[int]) -> str:
    if not positions:
        return ""
    named = ", ".join(
        f'<button type="button" class="dl-link" data-goto="{n}">token {n}</button>' for n in positions[:_MAX_NAMED]
    )
    more = f" and {count(len(positions) - _MAX_NAMED)} more" if len(positions) > _MAX_NAMED else ""
    return f'<p class="dl-hint">Another pick at {named}{more}.</p>'
