"""What the page says when something is wrong or missing, and the line about the checkpoint at the top."""

from collections.abc import Sequence

from app.render.text import count, esc
from models.errors import BrokerUnavailableError, DecodeLabError, NoWorkerError
from models.presence import CheckpointInfo, WorkerPresence

START_WORKER = "decodelab worker"


def alert(error: DecodeLabError | None, *, run_id: str = "") -> str:
    """One sentence at the page's fixed place for errors; empty (but present, for screen readers) without one."""
    if error is None:
        return '<div class="dl-alert" role="alert"></div>'
    hint = f" Start one with <code>{START_WORKER}</code>." if _lacks_command(error) else ""
    run = f' Run <code class="dl-copy">{esc(run_id)}</code>.' if run_id else ""
    field = f' data-field="{esc(error.field)}"' if error.field else ""
    return f'<div class="dl-alert dl-alert-on" role="alert"{field}>{esc(error.message)}{hint}{run}</div>'


def hint(error: DecodeLabError) -> str:
    """An error that belongs to one part of the page only, in that part's place."""
    return f'<p class="dl-hint">{esc(error.message)}</p>'


def checkpoint_line(workers: Sequence[WorkerPresence], checkpoint: str | None) -> str:
    """`name · 135 M parameters · cpu float32 · 1 of 1 rows busy` for the chosen checkpoint."""
    serving = [w for w in workers if checkpoint is None or w.checkpoint.name == checkpoint]
    if not serving:
        return (
            '<p class="dl-status dl-status-bad">No worker is running. '
            f"Start one with <code>{START_WORKER}</code>; your prompt stays here.</p>"
        )
    info = serving[0].checkpoint
    busy, rows = sum(w.num_running for w in serving), sum(w.num_rows for w in serving)
    workers_words = f" on {count(len(serving), 'worker')}" if len(serving) > 1 else ""
    return (
        f'<p class="dl-status"><b>{esc(info.name)}</b> · {parameters(info)} · {esc(info.device)} {esc(info.dtype)} · '
        f"{busy} of {count(rows, 'row')} busy{workers_words} · context {count(info.context_length)}</p>"
    )


def broken_line(error: DecodeLabError) -> str:
    """The same place when the state cannot be read."""
    what = "The queue does not answer" if isinstance(error, BrokerUnavailableError) else "A part does not answer"
    return (
        f'<p class="dl-status dl-status-bad">{what}. Saved runs can still be opened; '
        "this page tries again by itself.</p>"
    )


def token_count(num_tokens: int | None, context_length: int | None) -> str:
    """`5 tokens`, with the limit where it is passed; a dash while nobody can count."""
    if num_tokens is None:
        return '<span class="dl-count">– tokens</span>'
    words = count(num_tokens, "token")
    if context_length is not None and num_tokens >= context_length:
        return (
            f'<span class="dl-count dl-count-bad">{words}; the checkpoint has {count(context_length)} positions</span>'
        )
    return f'<span class="dl-count">{words}</span>'


def parameters(info: CheckpointInfo) -> str:
    millions = info.num_parameters / 1e6
    return f"{millions / 1000:.1f} B parameters" if millions >= 1000 else f"{millions:,.0f} M parameters"


def _lacks_command(error: DecodeLabError) -> bool:
    return isinstance(error, NoWorkerError) and START_WORKER not in error.message
