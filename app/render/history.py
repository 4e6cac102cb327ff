"""The table of saved runs: dense, one line a run, every cell escaped; a line opens its run or its comparison."""

from collections.abc import Sequence
from typing import Final

from app.history import RunSummary
from app.render.ending import reason_words
from app.render.form import changed_words
from app.render.panel import arm_name
from app.render.text import clipped, count, decimal, esc, quoted, spelled
from models.events import RunKind

_HEAD: Final = (
    "<thead><tr><th>time (UTC)</th><th>prompt</th><th>text</th><th>settings</th><th>stop</th>"
    '<th class="dl-num">tokens</th><th class="dl-num">tok/s</th><th class="dl-num">mean raw logprob</th></tr></thead>'
)
_NUM_PROMPT_CHARACTERS: Final = 48
_NUM_TEXT_CHARACTERS: Final = 64


def history_table(rows: Sequence[RunSummary], *, is_filtered: bool = False) -> str:
    """The rows in the order given; runs of one comparison carry its link and their arm's letter."""
    if not rows:
        hint = (
            "No saved run matches. Clear the filters to see all."
            if is_filtered
            else 'Nothing is saved yet. Runs of the <a href="./">playground</a> and '
            '<a href="./compare">comparisons</a> appear here.'
        )
        return f'<p class="dl-hint">{hint}</p>'
    body = history_rows(rows)
    return f'<div class="dl-scroll"><table class="dl-history">{_HEAD}<tbody>{body}</tbody></table></div>'


def history_rows(rows: Sequence[RunSummary]) -> str:
    """The lines alone, to go under those of an earlier call."""
    return "".join(_row(row) for row in rows)


def link_to(row: RunSummary) -> str:
    """The address at which a run opens, relative to the pages' root."""
    return f"./?run={esc(row.id)}"


def _row(row: RunSummary) -> str:
    link = link_to(row)
    prompt = _named(row.prompt_start)
    settings = esc(changed_words(row.changed)) or '<span class="dl-soft">neutral</span>'
    mean = decimal(row.mean_logprob, 3)
    speed = decimal(row.tokens_per_s, 1)
    created = row.created_at
    return (
        f'<tr data-run="{esc(row.id)}"><td class="dl-time"><time datetime="{created.isoformat()}">'
        f"{created:%d %b %H:%M:%S}</time></td>"
        f'<td class="dl-start"><a href="{link}">{prompt}</a></td>'
        f'<td class="dl-start">{clipped(row.text_start, _NUM_TEXT_CHARACTERS)}</td>'
        f'<td class="dl-set">{_arm(row)}{_kind(row)}{settings}</td><td>{_stop(row)}</td>'
        f'<td class="dl-num">{count(row.num_tokens)}</td><td class="dl-num">{speed}</td>'
        f'<td class="dl-num">{mean}</td></tr>'
    )


def _named(prompt: str) -> str:
    """The start of the prompt as a name to click: one of white space alone in quotes."""
    if not prompt:
        return "(empty)"
    return clipped(prompt, _NUM_PROMPT_CHARACTERS) if spelled(prompt).strip() else quoted(prompt)


def _arm(row: RunSummary) -> str:
    if row.experiment_id is None:
        return ""
    name = arm_name(row.arm_index or 0)
    link = f"./compare?experiment={esc(row.experiment_id)}"
    return f'<a class="dl-armlink" href="{link}" title="open the comparison">{name}</a> '


def _kind(row: RunSummary) -> str:
    """Whose text it is, where the checkpoint did not write it."""
    return '<span class="dl-soft">scored · </span>' if row.kind is RunKind.SCORE else ""


def _stop(row: RunSummary) -> str:
    if row.stop_reason is None:
        return f'<span class="dl-soft">{esc(row.status.value)}</span>'
    return esc(reason_words(row.stop_reason.value))
