"""The state of the whole stack as a few dense tables."""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Final

from app.overview import QUANTILES, RATE, ActiveRun, FailedRun, QueueLine, Snapshot, Spread
from app.render.ending import reason_words
from app.render.notices import START_WORKER, parameters
from app.render.text import clipped, count, decimal, esc, milliseconds
from models.presence import WorkerPresence

_FIGURES: Final = {
    "queue_ms": ("in the queue", "from submit to the first claim"),
    "prefill_ms": ("prefill", "over the whole prompt"),
    "ttft_ms": ("TTFT", "from submit to the first token sent"),
    "itl_ms": ("between two tokens", "each run's median"),
    RATE: ("tokens/s", "of one run, decode alone: what 50, 95 and 99 of 100 runs reach"),
}
_NUM_CHARACTERS: Final = 60


def status_tables(snapshot: Snapshot) -> str:
    """All of it. Nothing here depends on the clock of the browser."""
    taken = "" if snapshot.taken_at is None else f"As of {_time(snapshot.taken_at)} UTC; renewed every few seconds."
    problems = "".join(f'<p class="dl-problem">{esc(problem)}</p>' for problem in snapshot.problems)
    return (
        f'<div class="dl-overview"><p class="dl-soft">{taken}</p>{problems}'
        f"{_section('Workers', _workers(snapshot.workers))}{_section('Queues', _queues(snapshot.queues))}"
        f"{_section('Waiting and running', _active(snapshot.active))}"
        f"{_section('Latency of the last runs', _spreads(snapshot.spreads))}"
        f"{_section('Failures of the last week', _failures(snapshot.failures))}</div>"
    )


def duration(seconds: float) -> str:
    """`8 s`, `3 min`, `2 h`: as much as matters."""
    seconds = max(0.0, seconds)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def _section(title: str, body: str) -> str:
    return f'<section aria-label="{esc(title)}"><h2>{esc(title)}</h2>{body}</section>'


def _table(head: str, rows: Sequence[str], *, is_small: bool = False) -> str:
    """A table; a small one fits a narrow page as it is."""
    small = ' class="dl-small"' if is_small else ""
    cells = "".join(
        f'<th class="dl-num">{name[1:]}</th>' if name.startswith("#") else f"<th>{name}</th>"
        for name in head.split("|")
    )
    return (
        f'<div class="dl-scroll" tabindex="0"><table{small}><thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _num(value: str) -> str:
    return f'<td class="dl-num">{value}</td>'


def _workers(workers: Sequence[WorkerPresence]) -> str:
    if not workers:
        return (
            f'<p class="dl-hint">No worker is alive. Start one with <code>{START_WORKER}</code>; runs wait for it.</p>'
        )
    rows = [
        f'<tr data-worker="{esc(w.worker_id)}"><td><code>{esc(w.worker_id)}</code></td>'
        f'<td>{esc(w.checkpoint.name)}<br><span class="dl-soft">{parameters(w.checkpoint)} · '
        f"context {count(w.checkpoint.context_length)}</span></td>"
        f"<td>{esc(w.checkpoint.device)} {esc(w.checkpoint.dtype)}{_how(w)}</td>"
        f"{_num(f'{w.num_running} of {w.num_rows}')}<td>{esc(w.started_at[:16].replace('T', ' '))}</td>"
        f'<td class="dl-soft">{_versions(w)}</td></tr>'
        for w in workers
    ]
    return _table("worker|checkpoint|computes|#rows busy|since (UTC)|versions", rows)


def _how(worker: WorkerPresence) -> str:
    info = worker.checkpoint
    words = [
        "short steps are compiled" if info.is_fused else "every step is the network's own pass",
        "runs share passes" if info.can_batch else f"each run has its own passes: {esc(info.alone_because)}",
    ]
    return f'<br><span class="dl-soft">{", ".join(words)}</span>'


def _versions(worker: WorkerPresence) -> str:
    names = ("decodelab", "torch", "transformers")
    return ", ".join(f"{name} {esc(worker.versions[name])}" for name in names if name in worker.versions)


def _queues(queues: Sequence[QueueLine]) -> str:
    if not queues:
        return '<p class="dl-hint">Nothing waits and nothing runs.</p>'
    rows = [
        f'<tr data-queue="{esc(q.checkpoint)}"><td>{esc(q.checkpoint)}</td>{_num(count(q.num_waiting))}'
        f"{_num('–' if q.oldest_waiting_s is None else duration(q.oldest_waiting_s))}{_num(count(q.num_running))}</tr>"
        for q in queues
    ]
    return _table("checkpoint|#waiting|#longest wait|#running", rows)


def _active(runs: Sequence[ActiveRun]) -> str:
    if not runs:
        return '<p class="dl-hint">None. A run that starts shows here with what it has made so far.</p>'
    rows = [
        f'<tr data-run="{esc(run.id)}"><td><a href="./?run={esc(run.id)}">{_start(run.prompt_start)}</a></td>'
        f"<td>{esc(run.checkpoint)}</td><td>{esc(run.status.value)}{_attempt(run)}</td>"
        f"{_num(count(run.num_tokens))}{_num(duration(run.age_s))}</tr>"
        for run in runs
    ]
    return _table("prompt|checkpoint|state|#tokens saved|#since submit", rows)


def _attempt(run: ActiveRun) -> str:
    return f", attempt {run.attempt}" if run.attempt > 1 else ""


def _spreads(spreads: Sequence[Spread]) -> str:
    if not spreads:
        return '<p class="dl-hint">No run has ended yet.</p>'
    heads = "|".join(f"#p{100 * q:.0f}" for q in QUANTILES)
    return "".join(
        f"<h3>{esc(checkpoint)}</h3>"
        + _table(f"figure|{heads}|#runs", [_spread(spread) for spread in of_one], is_small=True)
        for checkpoint, of_one in groupby(spreads, key=lambda spread: spread.checkpoint)
    )


def _spread(spread: Spread) -> str:
    name, what = _FIGURES[spread.figure]
    numbers = "".join(_num(decimal(v, 1) if spread.figure == RATE else milliseconds(v)) for v in spread.values)
    return (
        f'<tr data-figure="{spread.figure}"><td title="{esc(what)}">{name}</td>{numbers}'
        f"{_num(count(spread.num_runs))}</tr>"
    )


def _failures(failures: Sequence[FailedRun]) -> str:
    if not failures:
        return '<p class="dl-hint">None.</p>'
    rows = [
        f'<tr data-run="{esc(run.id)}"><td>{_time(run.ended_at)}</td>'
        f'<td><a href="./?run={esc(run.id)}">{_start(run.prompt_start)}</a></td>'
        f"<td>{esc(reason_words(run.reason))}</td><td>{esc(run.message)}</td></tr>"
        for run in failures
    ]
    return _table("time (UTC)|prompt|reason|what happened", rows)


def _start(prompt: str) -> str:
    return clipped(prompt, _NUM_CHARACTERS) if prompt.strip() else "(blank)"


def _time(moment: datetime) -> str:
    return f"{moment:%d %b %H:%M:%S}"
