"""The verdict on a run that was made again: the same tokens, or the first one that is not, with both numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.record import RunDetail
from app.render.ending import reason_words
from app.render.text import count, esc, percent, quoted
from models.events import TokenPicked


def replay_words(saved: RunDetail, fresh: RunDetail) -> str:
    """The verdict as HTML; both runs have ended."""
    position = first_difference(saved.tokens, fresh.tokens)
    link = f'<a href="./?run={esc(fresh.id)}">the new run</a>'
    verdict = _same(saved, fresh) if position is None else _differs(saved, fresh, position)
    kind = "same" if position is None else "differs"
    return (
        f'<p class="dl-verdict" data-verdict="{kind}">{verdict} {_largest(saved.tokens, fresh.tokens)} Open {link}.</p>'
        f"{_circumstances(saved.capsule, fresh.capsule)}"
    )


def progress_words(saved: Sequence[TokenPicked], fresh: Sequence[TokenPicked]) -> str:
    """How far the new run is, and whether it is the same so far."""
    if not fresh:
        return '<p class="dl-hint">Queued …</p>'
    length = min(len(saved), len(fresh))
    position = first_difference(saved[:length], fresh[:length])
    so_far = "the same so far" if position is None else f"another one at token {position}"
    return f'<p class="dl-hint">{count(len(fresh))} of {count(len(saved), "token")}, {so_far} …</p>'


def first_difference(saved: Sequence[TokenPicked], fresh: Sequence[TokenPicked]) -> int | None:
    """The first position at which the lists of tokens differ; where one is the beginning of the other, its length."""
    for position, (one, other) in enumerate(zip(saved, fresh, strict=False)):
        if one.token_id != other.token_id:
            return position
    return None if len(saved) == len(fresh) else min(len(saved), len(fresh))


def _same(saved: RunDetail, fresh: RunDetail) -> str:
    words = f"<b>The same {count(len(saved.tokens), 'token')}.</b>"
    if saved.stop and fresh.stop and saved.stop.reason is not fresh.stop.reason:
        words += f" Only the ending differs: {_ending(saved)}, then {_ending(fresh)}."
    return words


def _differs(saved: RunDetail, fresh: RunDetail, position: int) -> str:
    at = f'<button type="button" class="dl-link" data-goto="{position}">token {position}</button>'
    if position >= len(saved.tokens):
        was = f"the saved run had ended ({_ending(saved)}) after {count(position, 'token')}"
        return f"<b>Not the same length</b>: {was}, the new one goes on with {_told(fresh.tokens[position])}."
    if position >= len(fresh.tokens):
        is_ended = f"the new run has ended ({_ending(fresh)}) before {at}"
        return f"<b>Not the same length</b>: {is_ended}, where the saved one has {_told(saved.tokens[position])}."
    one, other = saved.tokens[position], fresh.tokens[position]
    return f"<b>They differ from {at} on</b>: saved {_told(one)}, new {_told(other)}."


def _ending(run: RunDetail) -> str:
    return esc(reason_words(run.stop.reason)) if run.stop else "no ending"


def _told(token: TokenPicked) -> str:
    name = quoted(token.piece) if token.piece else f"<code>#{token.token_id}</code>"
    return f"{name} (raw {percent(token.raw_logprob)}, processed {percent(token.logprob)})"


def _largest(saved: Sequence[TokenPicked], fresh: Sequence[TokenPicked]) -> str:
    """The largest difference of a raw log-probability over the tokens that both have."""
    pairs = []
    for one, other in zip(saved, fresh, strict=False):
        if one.token_id != other.token_id:
            break
        pairs.append((abs(one.raw_logprob - other.raw_logprob), one.position))
    if not pairs:
        return ""
    difference, position = max(pairs, key=lambda pair: pair[0])
    if not difference:
        return "Their log-probabilities are equal to the last digit."
    return f"Their log-probabilities differ by at most <b>{difference:.1e}</b> nats, at token {position}."


def _circumstances(saved: Mapping[str, Any] | None, fresh: Mapping[str, Any] | None) -> str:
    """What else was not the same: device, numbers, versions."""
    differing = [
        f"{esc(name)} {esc(was)} then, {esc(now)} now"
        for name, was, now in _pairs(saved or {}, fresh or {})
        if was != now
    ]
    return f'<p class="dl-hint">Not the same circumstances: {"; ".join(differing)}.</p>' if differing else ""


def _pairs(saved: Mapping[str, Any], fresh: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    pairs = []
    for name in sorted(saved.keys() & fresh.keys()):
        was, now = saved[name], fresh[name]
        if isinstance(was, dict) and isinstance(now, dict):
            pairs += _pairs(was, now)
        else:
            pairs.append((name, was, now))
    return pairs
