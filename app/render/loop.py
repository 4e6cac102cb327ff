"""How a text is made, in six lines, told with the numbers of the person's own run."""

from collections.abc import Sequence

from app.render.ending import reason_words
from app.render.text import count, milliseconds, percent, quoted
from models.events import Ended, Prefilled, Started, TokenPicked


def loop_lines(
    started: Started | None, prefilled: Prefilled | None, tokens: Sequence[TokenPicked], ended: Ended
) -> list[str]:
    """Six lines of HTML; fewer for a run that ended before it picked anything."""
    if started is None or prefilled is None or not tokens:
        return []
    first = tokens[0]
    best = first.candidates[0] if first.candidates else None
    leads = f"; the best one is {quoted(best.piece)} at {percent(best.raw_logprob)}" if best else ""
    kept = next(iter(reversed(first.kept.values())), None)
    cut = f", which leave {count(kept, 'token')}" if kept is not None else ""
    gap = ended.timing.itl_ms["p50"] if ended.timing.itl_ms else None
    each = f", {milliseconds(gap)} each" if gap is not None else ""
    return [
        f"Your prompt becomes {count(len(started.prompt_token_ids), 'token')}.",
        f"<b>Prefill</b>: all of them go through the network at once, in {milliseconds(prefilled.prefill_ms)}; their "
        "keys and values stay in the cache.",
        f"The network gives every token of its vocabulary a probability{leads}. That is <b>raw</b>.",
        f"Your settings reshape it{cut}. That is <b>processed</b>.",
        f"One token is picked: {quoted(first.piece)}, {percent(first.raw_logprob)} raw, {percent(first.logprob)} "
        "processed. Same seed, same pick.",
        f"<b>Decode</b>: it goes through the network alone{each}, and lines 3 to 5 repeat, "
        f"{count(len(tokens), 'time')} here, until something ends it: {reason_words(ended.stop.reason)}.",
    ]


def loop_fold(started: Started | None, prefilled: Prefilled | None, tokens: Sequence[TokenPicked], ended: Ended) -> str:
    """The lines in a fold; nothing where there are none."""
    lines = loop_lines(started, prefilled, tokens, ended)
    if not lines:
        return ""
    items = "".join(f"<li>{line}</li>" for line in lines)
    summary = "<summary>the loop in six lines, on this run</summary>"
    return f'<details class="dl-fold dl-loop">{summary}<ol>{items}</ol></details>'
