"""The cache position by position: what prefill filled in a few wide passes, and what decode added one a pass."""

from dataclasses import dataclass

from app.render.text import byte_size, count, esc
from models.events import Ended, Prefilled

MAX_TICKED = 400  # narrower than a pixel or two, single positions are no longer drawn apart


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring positions that came into the cache in the same way."""

    kind: str  # "shared", "prefill", "read", "decode"
    num_positions: int
    num_passes: int

    @property
    def words(self) -> str:
        positions = count(self.num_positions, "position")
        if self.kind == "shared":
            return f"{positions} of the prompt, computed by another run"
        passes = "1 pass" if self.num_passes == 1 else f"{count(self.num_passes)} passes"
        if self.kind == "decode":
            return f"{positions}, one a pass"
        return f"{positions} {'of the prompt' if self.kind == 'prefill' else 'that were given'} in {passes}"


def stretches(ended: Ended, prefilled: Prefilled | None) -> list[Stretch]:
    """The cache from its first position to its last; empty where that is not one line of positions.

    The last token is never in the cache: nothing was asked after it.
    """
    if prefilled is None or not ended.kv_positions:
        return []
    num_prompt = prefilled.num_prompt_tokens
    computed = min(num_prompt, ended.passes.prompt_tokens_computed)
    further = ended.kv_positions - num_prompt
    num_decoded = min(max(0, further), ended.passes.decode)
    num_read = max(0, further - num_decoded)
    found = [
        Stretch("shared", num_prompt - computed, 0),
        Stretch("prefill", computed, prefilled.num_passes),
        Stretch("read", num_read, max(0, ended.passes.prefill - prefilled.num_passes)),
        Stretch("decode", num_decoded, num_decoded),
    ]
    return [stretch for stretch in found if stretch.num_positions]


def passes_strip(ended: Ended, prefilled: Prefilled | None, *, num_beams: int = 1) -> str:
    """The positions as one bar to scale, each pass a part of it, with their bytes. Nothing for beams, which share."""
    parts = stretches(ended, prefilled) if num_beams == 1 else []
    if not parts:
        return ""
    each = ended.kv_bytes / ended.kv_positions
    bar = "".join(_bar(stretch) for stretch in parts)
    keys = "".join(
        f'<li><i class="dl-pass-{s.kind}"></i>{s.kind} <b>{count(s.num_positions)}</b> '
        f"{byte_size(round(each * s.num_positions))}</li>"
        for s in parts
    )
    label = esc("cached positions: " + "; ".join(stretch.words for stretch in parts))
    return (
        f'<div class="dl-passes" role="img" aria-label="{label}">{bar}</div><ul class="dl-keys dl-passes-keys">{keys}'
        f"<li>{count(ended.kv_positions, 'cached position')}, {byte_size(round(each))} each</li></ul>"
    )


def _bar(stretch: Stretch) -> str:
    title = f'title="{esc(stretch.kind)}: {esc(stretch.words)}"'
    share = stretch.num_positions
    if stretch.kind in ("prefill", "read") and 1 < stretch.num_passes <= MAX_TICKED:
        inner = "<i></i>" * stretch.num_passes
        return f'<span class="dl-pass-{stretch.kind}" style="flex-grow:{share}" {title}>{inner}</span>'
    if stretch.kind == "decode" and share <= MAX_TICKED:
        return f'<span class="dl-pass-decode" style="flex-grow:{share}" {title}>{"<i></i>" * share}</span>'
    return f'<span class="dl-pass-{stretch.kind}" style="flex-grow:{share}" {title}></span>'
