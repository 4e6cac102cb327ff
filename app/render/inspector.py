"""One token beside its rivals: both probabilities as bars, what removed whom, and the rest in one row."""

import math

from app.render.text import bits, count, decimal, esc, percent, percent_of, quoted, spelled
from models.events import Candidate, TokenPicked

EMPTY = '<p class="dl-hint">Click a token, or press an arrow key in the text, to see what else could have come.</p>'

_DRAWN_HEAD = (
    '<th class="dl-num" title="G(seed, position, token id): the same for every arm with this seed">noise</th>'
    '<th class="dl-num" title="ln processed + noise; the token with the largest score is picked">score</th>'
)
_CONTINUE = (
    '<form class="dl-continue" data-continue><label for="dl-continue">continue from here with</label>'
    '<input type="text" id="dl-continue" name="text" data-input autocomplete="off" spellcheck="false" '
    'placeholder="text; its spaces count"><button type="submit" class="dl-link">branch</button>'
    '<span class="dl-soft">or ↳ beside a rival</span></form>'
)
_ROUNDING = 2e-6  # of the two numbers in a score
_STAGE_WORDS = {
    "bias": "banned",
    "no_repeat_ngram": "no_repeat_ngram",
    "min_tokens": "min_tokens",
}


def inspector(token: TokenPicked, *, vocab_size: int | None = None, title: str = "", can_branch: bool = False) -> str:
    """The whole panel for one token. `title` names the arm where several panels stand side by side.

    `can_branch`: every rival has a button that continues with it, and there is a place for a text.
    """
    is_drawn = _is_drawn(token)
    rows = "".join(_row(c, token, is_drawn=is_drawn, can_branch=can_branch) for c in token.candidates)
    drawn = _DRAWN_HEAD if is_drawn else ""
    return (
        f'<section class="dl-inspector" data-position="{token.position}" '
        f'aria-label="{esc(title)} Token {token.position}">'
        f"{_heading(token, title)}{_facts(token, vocab_size)}"
        f'<table class="dl-rivals{" dl-drawn" if is_drawn else ""}"><thead><tr><th></th><th>candidate</th>'
        f'<th class="dl-num">raw</th><th></th><th class="dl-num">processed</th><th></th>{drawn}</tr></thead>'
        f"<tbody>{rows}{_others(token, is_drawn=is_drawn)}</tbody></table>"
        f"{_penalised(token)}{_CONTINUE if can_branch else ''}</section>"
    )


def _heading(token: TokenPicked, title: str) -> str:
    piece = quoted(token.piece) if token.piece else f"<code>{esc(token.token_bytes.hex(' ') or 'no bytes')}</code>"
    arm = f'<span class="dl-arm">{esc(title)}</span> ' if title else ""
    return (
        f"<h3>{arm}Token {token.position} {piece} <small>id {token.token_id}</small></h3>"
        f'<p class="dl-pair"><span>raw <b>{percent(token.raw_logprob)}</b></span>'
        f"<span>processed <b>{percent(token.logprob)}</b></span></p>"
    )


def _facts(token: TokenPicked, vocab_size: int | None) -> str:
    rank = f"rank {count(token.rank)}" + (f" of {count(vocab_size)}" if vocab_size else "")
    facts = [
        rank,
        f"rank {count(token.rank_processed)} processed",
        f"entropy {bits(token.entropy)} raw, {bits(token.entropy_processed)} processed",
    ]
    kept = [f"{esc(stage)} kept {count(n)}" + _removed(token, stage) for stage, n in token.kept.items()]
    state = _state(token)
    return f'<p class="dl-facts">{" · ".join([*facts, *kept, *_pick(token), *state])}</p>'


def _pick(token: TokenPicked) -> list[str]:
    if not token.candidates:
        return []  # the record does not tell
    if token.logprob is None:
        return ["given: these settings would never pick it"]
    if _is_drawn(token):
        scores = {
            c.token_id: c.logprob + c.noise for c in token.candidates if c.logprob is not None and c.noise is not None
        }
        best = max(scores, key=scores.__getitem__)
        if scores[token.token_id] >= scores[best] - _ROUNDING:
            return ["picked for the largest score"]
        piece = next(c.piece for c in token.candidates if c.token_id == best)
        return [f"given: {quoted(piece)} has the largest score"]
    if token.rank_processed > 1:
        return ["nothing is drawn: the best text of a beam search has it"]
    return ["nothing is drawn: the best is taken"]


def _is_drawn(token: TokenPicked) -> bool:
    """Whether noise took part in the pick, as far as the record tells."""
    return any(c.noise is not None for c in token.candidates)


def _removed(token: TokenPicked, stage: str) -> str:
    mass = token.removed_mass.get(stage)
    return "" if mass is None else f" (removed {percent_of(mass)} raw)"


def _state(token: TokenPicked) -> list[str]:
    if token.withheld:
        return ["not in the text: cut away by a stop string"]
    if not token.visible:
        return ["not in the text: an end or special token"]
    if not token.piece:
        return ["a part of a character; the text comes with a later token"]
    if token.text != token.piece:
        return [f"cut by a stop string: {quoted(token.text)} is in the text"]
    return []


def _penalised(token: TokenPicked) -> str:
    """Whose logits bias and penalties changed, by how much, and because of which places."""
    items = "".join(_penalty(c) for c in token.candidates if c.penalty or c.num_causes)
    if not items:
        return ""
    return (
        '<details class="dl-fold dl-penalties"><summary>penalties and bias at this token</summary>'
        '<p class="dl-soft">Logit changes in nats, and the places that caused them, counted from the first token of '
        f"the prompt, which is 0.</p><ul>{items}</ul></details>"
    )


def _penalty(candidate: Candidate) -> str:
    places = ", ".join(str(place) for place in candidate.causes)
    more = candidate.num_causes - len(candidate.causes)
    before = f"{count(more)} earlier, then " if more else ""
    because = f" · seen {count(candidate.num_causes, 'time')}: {before}{places}" if candidate.num_causes else ""
    name = quoted(candidate.piece) if candidate.piece else f"<code>#{candidate.token_id}</code>"
    return f"<li>{name} <b>{decimal(candidate.penalty, 3, signed=True)}</b>{because}</li>"


def _mark(candidate: Candidate, *, is_picked: bool, can_branch: bool) -> str:
    """The first cell: what was picked, or the way to go on from here with this one instead."""
    if is_picked:
        return '<span aria-label="picked">▸</span>'
    if not can_branch or candidate.removed_by == "constraint":
        return ""
    words = esc(f"branch: continue with {spelled(candidate.piece)!r} instead")
    attributes = f'class="dl-branch" data-branch="{candidate.token_id}" title="{words}" aria-label="{words}"'
    return f'<button type="button" {attributes}>↳</button>'


def _row(candidate: Candidate, token: TokenPicked, *, is_drawn: bool, can_branch: bool = False) -> str:
    picked = candidate.token_id == token.token_id
    classes = " ".join(c for c in ("dl-picked" if picked else "", "dl-removed" if candidate.removed_by else "") if c)
    mark = _mark(candidate, is_picked=picked, can_branch=can_branch)
    name = quoted(candidate.piece) if candidate.piece else f"<code>#{candidate.token_id}</code>"
    return (
        f'<tr class="{classes}" data-token-id="{candidate.token_id}" title="{esc(_details(candidate))}">'
        f"<td>{mark}</td><td>{name}</td>"
        f'<td class="dl-num" data-raw="{_number(candidate.raw_logprob)}">{percent(candidate.raw_logprob)}</td>'
        f"<td>{_bar(candidate.raw_logprob, 'raw')}</td>{_processed(candidate)}"
        f"{_drawn(candidate) if is_drawn else ''}</tr>"
    )


def _drawn(candidate: Candidate) -> str:
    """Noise and score; a removed token has noise, and no score."""
    noise = candidate.noise
    score = None if noise is None or candidate.logprob is None else round(candidate.logprob + noise, 6)
    return (
        f'<td class="dl-num" data-noise="{_number(noise)}">{_signed(noise)}</td>'
        f'<td class="dl-num dl-score" data-score="{_number(score)}">{_signed(score)}</td>'
    )


def _signed(nats: float | None) -> str:
    return decimal(nats, 2, signed=True) or "–"


def _processed(candidate: Candidate) -> str:
    if candidate.logprob is None:
        stage = candidate.removed_by
        return f'<td class="dl-num">–</td>{_gone(stage)}'
    return (
        f'<td class="dl-num" data-processed="{_number(candidate.logprob)}">{percent(candidate.logprob)}</td>'
        f"<td>{_bar(candidate.logprob, 'processed')}</td>"
    )


def _gone(stage: str | None) -> str:
    """Who removed a candidate. Where there is little room the name of the stage stands alone."""
    if stage is None:
        return '<td class="dl-gone" data-removed-by="">impossible</td>'
    name = esc(_STAGE_WORDS.get(stage, stage))
    attributes = f'class="dl-gone" data-removed-by="{esc(stage)}" title="removed by {name}"'
    return f'<td {attributes}><span class="dl-by">removed by </span>{name}</td>'


def _others(token: TokenPicked, *, is_drawn: bool) -> str:
    others = token.others
    drawn = "<td></td><td></td>" if is_drawn else ""
    return (
        '<tr class="dl-others"><td></td><td>all others</td>'
        f'<td class="dl-num" data-raw-mass="{others.raw}">{percent_of(others.raw)}</td>'
        f"<td>{_bar_of(others.raw, 'raw')}</td>"
        f'<td class="dl-num" data-processed-mass="{others.processed}">{percent_of(others.processed)}</td>'
        f"<td>{_bar_of(others.processed, 'processed')}</td>{drawn}</tr>"
    )


def _details(candidate: Candidate) -> str:
    parts = [f"id {candidate.token_id}"]
    if candidate.raw_logprob is not None:
        parts.append(f"raw log-probability {candidate.raw_logprob:.4f}")
    if candidate.logprob is not None:
        parts.append(f"processed {candidate.logprob:.4f}")
    if candidate.penalty:
        parts.append(f"bias and penalties changed its logit by {candidate.penalty:+.4f}")
    if candidate.noise is not None:
        parts.append(f"noise {candidate.noise:+.4f}")
    return ", ".join(parts)


def _number(logprob: float | None) -> str:
    return "" if logprob is None else repr(logprob)


def _bar(logprob: float | None, kind: str) -> str:
    return _bar_of(0.0 if logprob is None else math.exp(logprob), kind)


def _bar_of(probability: float, kind: str) -> str:
    if probability <= 0:
        return ""
    return f'<span class="dl-bar dl-bar-{kind}"><i style="width:{100 * min(probability, 1.0):.1f}%"></i></span>'
