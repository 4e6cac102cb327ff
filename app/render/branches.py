"""The tree of runs that share a beginning, as nested lists of links."""

from collections.abc import Sequence

from app.family import MAX_RELATIVES, Relative
from app.render.ending import reason_words
from app.render.text import clipped, count, esc

_NUM_CHARACTERS = 56


def branches(relatives: Sequence[Relative], run_id: str) -> str:
    """The fold. `relatives` begin with the eldest; nothing for a run that is alone."""
    if len(relatives) < 2:
        return ""
    children: dict[str, list[Relative]] = {}
    for relative in relatives[1:]:
        children.setdefault(relative.parent_id or "", []).append(relative)
    more = ""
    if len(relatives) >= MAX_RELATIVES:
        more = f'<p class="dl-soft">The first {count(MAX_RELATIVES)} runs are shown; all are in the history.</p>'
    for siblings in children.values():
        siblings.sort(key=lambda relative: (relative.fork_position or 0, relative.id))
    return (
        f'<details class="dl-fold dl-branches" open><summary>branches <span class="dl-soft">'
        f"{count(len(relatives), 'run')} with this beginning</span></summary>"
        f'<ul aria-label="tree of runs">{_item(relatives[0], children, run_id)}</ul>{more}</details>'
    )


def _item(relative: Relative, children: dict[str, list[Relative]], run_id: str) -> str:
    below = "".join(_item(child, children, run_id) for child in children.get(relative.id, ()))
    nested = f"<ul>{below}</ul>" if below else ""
    return f'<li data-run="{esc(relative.id)}">{_link(relative, is_here=relative.id == run_id)}{nested}</li>'


def _link(relative: Relative, *, is_here: bool) -> str:
    place = "start" if relative.fork_position is None else f"token {relative.fork_position}"
    words = clipped(relative.start, _NUM_CHARACTERS) or "(nothing yet)"
    ending = reason_words(relative.stop_reason) if relative.stop_reason else relative.status.value
    here = ' aria-current="true"' if is_here else ""
    return (
        f'<a href="./?run={esc(relative.id)}"{here}><span class="dl-place-of">{place}</span> '
        f'<q>{words}</q></a> <span class="dl-soft">{esc(ending)}, {count(relative.num_tokens, "token")}</span>'
    )
