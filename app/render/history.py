"""The table of saved runs: dense, every cell escaped; a line opens its run or unfolds its comparison."""

from collections.abc import Mapping
from typing import Final

from app.history import Comparison, RunPage, RunSummary, Sort, SortKey
from app.history_address import TO
from app.render.ending import reason_words
from app.render.form import changed_words
from app.render.panel import arm_name
from app.render.text import clipped, count, decimal, esc, quoted, spelled
from models.events import RunKind

_NUM_PROMPT_CHARACTERS: Final = 60
_NUM_TEXT_CHARACTERS: Final = 90
_NUM_NOTE_CHARACTERS: Final = 80

# Title, the order it sorts by, class, explanation.
_HEADS: Final[tuple[tuple[str, SortKey | None, str, str], ...]] = (
    ("time (UTC)", SortKey.TIME, "dl-time", "when it was asked for"),
    ("prompt", None, "dl-start", ""),
    ("text", None, "dl-said", ""),
    ("settings", None, "dl-set", ""),
    ("stop", None, "dl-why", ""),
    ("tokens", SortKey.TOKENS, "dl-num dl-tokens", "generated tokens"),
    ("tok/s", SortKey.SPEED, "dl-num dl-speed", "tokens a second while decoding"),
    ("logprob", SortKey.LOGPROB, "dl-num dl-mean", "mean raw log-probability of a token, nats"),
    ("entropy", SortKey.ENTROPY, "dl-num dl-entropy", "mean entropy of the raw distribution, nats"),
    ("tags", None, "dl-tags", ""),
)


def history_table(page: RunPage, sort: Sort, *, is_filtered: bool, is_grouped: bool) -> str:
    """The page's lines under a head whose buttons sort. With `is_grouped` a run stands for its comparison."""
    if not page.rows:
        return _nothing(is_filtered=is_filtered)
    return (
        f'<table class="dl-history"><caption class="dl-unseen">Saved runs</caption>{_head(sort)}'
        f"<tbody>{history_rows(page, is_grouped=is_grouped)}</tbody></table>"
    )


def history_rows(page: RunPage, *, is_grouped: bool, is_unfolded: bool = False) -> str:
    """The lines alone, to go under those of an earlier call, or with `is_unfolded` under that of their comparison."""
    lines = []
    for row in page.rows:
        comparison = page.comparisons.get(row.experiment_id or "")
        is_alone = comparison is None or not is_grouped
        lines.append(_row(row, is_unfolded=is_unfolded) if is_alone or comparison is None else _whole(row, comparison))
    return "".join(lines)


def chips(active: Mapping[str, str]) -> str:
    """The filters that act, each with a button that takes it away."""
    found = "".join(
        f'<button type="button" class="dl-chip-off" data-drop="{esc(name)}" aria-label="remove the filter '
        f'{esc(_chip(name, value))}">{esc(_chip(name, value))}<span aria-hidden="true">×</span></button>'
        for name, value in active.items()
    )
    every = '<button type="button" class="dl-link" data-drop-all>clear all</button>' if len(active) > 1 else ""
    return found + every


def link_to(row: RunSummary) -> str:
    """The address at which a run opens, relative to the pages' root."""
    return f"./?run={esc(row.id)}"


def _nothing(*, is_filtered: bool) -> str:
    hint = (
        "No saved run matches. The search finds whole words in any order, beginnings with a star "
        '(<code>par*</code>) and phrases in quotes (<code>"capital of"</code>), not the inside of a word. '
        '<button type="button" class="dl-link" data-drop-all>Show all runs</button>'
        if is_filtered
        else 'Nothing is saved yet. Runs of the <a href="./">playground</a> and '
        '<a href="./compare">comparisons</a> appear here.'
    )
    return f'<p class="dl-hint">{hint}</p>'


def _head(sort: Sort) -> str:
    cells = "".join(_head_cell(*head, sort=sort) for head in _HEADS)
    pick = '<th class="dl-pick"><input type="checkbox" data-all aria-label="select all that are shown"></th>'
    return (
        f'<thead><tr>{pick}<th class="dl-stars"><span class="dl-unseen">star</span></th>{cells}'
        '<th class="dl-edits"><span class="dl-unseen">edit</span></th></tr></thead>'
    )


def _head_cell(title: str, key: SortKey | None, css: str, help_text: str, *, sort: Sort) -> str:
    if key is None:
        return f'<th scope="col" class="{css}">{title}</th>'
    state = "" if key is not sort.key else ' aria-sort="ascending"' if sort.is_ascending else ' aria-sort="descending"'
    return (
        f'<th scope="col" class="{css}"{state}><button type="button" data-sort="{key}" title="{help_text}; '
        f'sort by it">{title}</button></th>'
    )


def _row(row: RunSummary, *, is_unfolded: bool) -> str:
    name = _name(row.title, row.prompt_start)
    settings = esc(changed_words(row.changed)) or '<span class="dl-soft">neutral</span>'
    css = "dl-of" if is_unfolded else ""
    return (
        f'<tr data-run="{esc(row.id)}" class="{css}" tabindex="-1">'
        f'<td class="dl-pick"><input type="checkbox" tabindex="-1" aria-label="select {name}"></td>'
        f"{_star(is_starred=row.is_starred)}{_time(row)}"
        f'<td class="dl-start"><a href="{link_to(row)}" tabindex="-1">{_title(row.title, row.prompt_start)}</a>'
        f"{_note(row.note)}</td>"
        f'<td class="dl-said">{clipped(row.text_start, _NUM_TEXT_CHARACTERS)}</td>'
        f'<td class="dl-set">{_arm(row)}{_kind(row)}{settings}</td><td class="dl-why">{_stop(row)}</td>'
        f'<td class="dl-num dl-tokens">{count(row.num_tokens)}</td>'
        f'<td class="dl-num dl-speed">{decimal(row.tokens_per_s, 1)}</td>'
        f'<td class="dl-num dl-mean">{decimal(row.mean_logprob, 3)}</td>'
        f'<td class="dl-num dl-entropy">{decimal(row.mean_entropy, 3)}</td>'
        f'<td class="dl-tags">{_tags(row.tags)}</td>'
        f'<td class="dl-edits">{_edit(row.title, row.note, row.tags)}</td></tr>'
    )


def _whole(row: RunSummary, comparison: Comparison) -> str:
    """The line of a comparison, which `row` stands for."""
    link = f"./compare?experiment={esc(comparison.id)}"
    words = count(comparison.num_arms, "arm")
    if comparison.num_runs != comparison.num_arms:
        words += f", {count(comparison.num_runs, 'run')}"
    return (
        f'<tr data-comparison="{esc(comparison.id)}" tabindex="-1">'
        f'<td class="dl-pick"><input type="checkbox" tabindex="-1" aria-label="select the comparison '
        f'{_name(comparison.title, row.prompt_start)}"></td>'
        f"{_star(is_starred=comparison.is_starred)}{_time(row)}"
        f'<td class="dl-start"><a href="{link}" tabindex="-1">{_title(comparison.title, row.prompt_start)}</a>'
        f"{_note(comparison.note)}</td>"
        '<td class="dl-said dl-soft"><button type="button" tabindex="-1" data-unfold aria-expanded="false" '
        f'aria-label="show its runs" title="show its runs"></button> comparison of {words}</td>'
        '<td class="dl-set"></td><td class="dl-why"></td>'
        '<td class="dl-num dl-tokens"></td><td class="dl-num dl-speed"></td><td class="dl-num dl-mean"></td>'
        '<td class="dl-num dl-entropy"></td><td class="dl-tags"></td>'
        f'<td class="dl-edits">{_edit(comparison.title, comparison.note, None)}</td></tr>'
    )


def _star(*, is_starred: bool) -> str:
    return (
        f'<td class="dl-stars"><button type="button" tabindex="-1" data-star aria-pressed="{_flag(is_starred)}" '
        'aria-label="star" title="star"></button></td>'
    )


def _time(row: RunSummary) -> str:
    moment = row.created_at
    return (
        f'<td class="dl-time"><time datetime="{moment.isoformat()}" title="{moment:%Y-%m-%d %H:%M:%S} UTC">'
        f"{moment:%d %b %H:%M:%S}</time></td>"
    )


def _title(title: str | None, prompt: str) -> str:
    """What a person called it, or the start of the prompt: one of white space alone in quotes."""
    if title:
        return f"<b>{clipped(title, _NUM_PROMPT_CHARACTERS)}</b>"
    if not prompt:
        return "(empty)"
    return clipped(prompt, _NUM_PROMPT_CHARACTERS) if spelled(prompt).strip() else quoted(prompt)


def _name(title: str | None, prompt: str) -> str:
    """The same for an attribute."""
    return clipped(title or prompt, 40) or "(empty)"


def _note(note: str | None) -> str:
    return f' <span class="dl-soft">{clipped(note, _NUM_NOTE_CHARACTERS)}</span>' if note else ""


def _tags(tags: tuple[str, ...]) -> str:
    return " ".join(
        f'<button type="button" class="dl-tag" tabindex="-1" data-tag="{esc(tag)}" title="only runs with this tag">'
        f"{esc(tag)}</button>"
        for tag in tags
    )


def _edit(title: str | None, note: str | None, tags: tuple[str, ...] | None) -> str:
    shown = "" if tags is None else f' data-tags="{esc(", ".join(tags))}"'
    what = "title and note" if tags is None else "title, note and tags"
    return (
        f'<button type="button" class="dl-link" tabindex="-1" data-edit data-title="{esc(title or "")}" '
        f'data-note="{esc(note or "")}"{shown} aria-label="{what}" title="{what}">edit</button>'
    )


def _arm(row: RunSummary) -> str:
    if row.experiment_id is None:
        return ""
    name = arm_name(row.arm_index or 0)
    link = f"./compare?experiment={esc(row.experiment_id)}"
    return f'<a class="dl-armlink" href="{link}" tabindex="-1" title="open the comparison">{name}</a> '


def _kind(row: RunSummary) -> str:
    """Whose text it is, where the checkpoint did not write it."""
    return '<span class="dl-soft">scored · </span>' if row.kind is RunKind.SCORE else ""


def _stop(row: RunSummary) -> str:
    if row.stop_reason is None:
        return f'<span class="dl-soft">{esc(row.status.value)}</span>'
    return esc(reason_words(row.stop_reason.value))


def _chip(name: str, value: str) -> str:
    """A filter in words, not escaped."""
    match name:
        case "stop":
            return f"stop: {reason_words(value)}"
        case "starred":
            return "starred" if value == "yes" else "not starred"
        case "tmin" | "tmax":
            return f"temperature {'≥' if name == 'tmin' else '≤'} {value}"
        case "nmin" | "nmax":
            return f"tokens {'≥' if name == 'nmin' else '≤'} {value}"
        case "since" | "until":
            return f"{'from' if name == 'since' else 'to'} {value}"
        case "checkpoint" | "status" | "kind" | "tag":
            return f"{name}: {value}"
        case _:
            return f"{name} {_range_words(value)}"


def _range_words(value: str) -> str:
    """The filter by a setting, as its parameter says it."""
    low, to, high = value.partition(TO)
    if not to:
        return value
    return f"{low} to {high}" if low and high else f"≥ {low}" if low else f"≤ {high}"


def _flag(value: bool) -> str:
    return "true" if value else "false"
