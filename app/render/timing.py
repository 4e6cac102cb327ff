"""Where a run's time went and what its cache held: one bar, one small chart, one line."""

from collections.abc import Sequence
from itertools import pairwise

from app.render.text import byte_size, count, milliseconds
from models.events import Ended, Prefilled, Timing, TokenPicked

CHART_WIDTH = 320
CHART_HEIGHT = 40


def figures(timing: Timing) -> str:
    """The line of headline numbers. Empty before there is any."""
    parts = []
    if timing.ttft_ms is not None:
        parts.append(f"TTFT <b>{milliseconds(timing.ttft_ms)}</b>")
    if timing.tokens_per_s is not None:
        parts.append(f"<b>{timing.tokens_per_s:.1f}</b> tok/s")
    if timing.itl_ms:
        named = " ".join(f"{name} <b>{milliseconds(value)}</b>" for name, value in timing.itl_ms.items())
        parts.append(f"ITL {named}")
    return f'<p class="dl-figures">{" · ".join(parts)}</p>' if parts else ""


def waterfall(timing: Timing, *, is_shown_late: bool = False) -> str:
    """One bar of queue, load, prefill, decode and delivery, to scale, with its numbers beside it."""
    shares = [(name, ms) for name, ms in segments(timing, is_shown_late=is_shown_late) if ms is not None]
    total = sum(ms for _, ms in shares)
    if not total:
        return ""
    bars = "".join(
        f'<i class="dl-seg dl-seg-{name}" style="width:{100 * ms / total:.2f}%" title="{name} {milliseconds(ms)}"></i>'
        for name, ms in shares
    )
    keys = "".join(f'<li><i class="dl-seg-{name}"></i>{name} <b>{milliseconds(ms)}</b></li>' for name, ms in shares)
    return f'<div class="dl-waterfall" role="img" aria-label="time by part">{bars}</div><ul class="dl-keys">{keys}</ul>'


def segments(timing: Timing, *, is_shown_late: bool = False) -> list[tuple[str, float | None]]:
    """The parts of the bar in order. Delivery is what the first token's way took beyond the parts before it.

    `is_shown_late`: no token was shown before the last one was known, so decode is one of these parts.
    """
    before = [timing.queue_ms, timing.load_ms, timing.prefill_ms]
    if is_shown_late:
        before.append(timing.decode_ms or 0.0)
    delivery = None
    if timing.ttft_ms is not None and all(part is not None for part in before):
        delivery = max(0.0, timing.ttft_ms - sum(part or 0.0 for part in before))
    return [
        ("queue", timing.queue_ms),
        ("load", timing.load_ms),
        ("prefill", timing.prefill_ms),
        ("decode", timing.decode_ms),
        ("delivery", delivery),
    ]


def gaps_chart(tokens: Sequence[TokenPicked]) -> str:
    """Inter-token gaps in order as a small line chart; nothing for fewer than three tokens."""
    gaps = [max(0.0, b.elapsed_ms - a.elapsed_ms) for a, b in pairwise(tokens)]
    if len(gaps) < 2:
        return ""
    top = max(gaps) or 1.0
    step = CHART_WIDTH / (len(gaps) - 1)
    points = " ".join(
        f"{i * step:.1f},{CHART_HEIGHT - 2 - (CHART_HEIGHT - 4) * g / top:.1f}" for i, g in enumerate(gaps)
    )
    return (
        f'<figure class="dl-gaps"><svg viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="gaps between tokens"><polyline points="{points}"/></svg>'
        f"<figcaption>gap before each token, 0 to {milliseconds(top)}</figcaption></figure>"
    )


def cache_line(ended: Ended, prefilled: Prefilled | None, *, num_beams: int = 1, read_too: str = "") -> str:
    """Passes and cache in words: what prefill did in one go, what decode did step by step.

    `read_too`: what was read beside the prompt, many of its positions in one go.
    """
    passes = ended.passes
    parts = []
    if passes.prefill:
        over = count(passes.prompt_tokens_computed, "prompt position") + (f" and {read_too}" if read_too else "")
        parts.append(f"prefill: {_passes(passes.prefill)} over {over}")
    if prefilled and prefilled.num_prompt_tokens > passes.prompt_tokens_computed:
        parts.append(f"{count(prefilled.num_prompt_tokens - passes.prompt_tokens_computed)} taken from the cache")
    if passes.decode:
        each = f" for each of {num_beams} beams" if num_beams > 1 else ""
        parts.append(f"decode: {_passes(passes.decode)} of one position{each}")
    together = " of all beams" if num_beams > 1 else ""
    parts.append(f"cache: {count(ended.kv_positions, 'position')}{together}, {byte_size(ended.kv_bytes)}")
    return f'<p class="dl-cache">{" · ".join(parts)}</p>'


def _passes(number: int) -> str:
    return "1 pass" if number == 1 else f"{count(number)} passes"
