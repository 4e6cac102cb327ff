"""Runs on a terminal: text as it arrives, then the facts in a line."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import typer

from app.compare import explain, figures, first_divergence
from app.doctor import Check
from app.history import RunDetail, RunPage, RunSummary
from models.events import Ended, Event, StopRecord, TokenPicked
from models.score import score_figures

_NUM_CHARACTERS = 40


def say(text: str) -> None:
    """A message for the person, beside the output proper."""
    typer.echo(text, err=True)


def print_json(value: Any) -> None:
    """One strict JSON object on a line of its own."""
    sys.stdout.write(orjson.dumps(value).decode("utf-8") + "\n")
    sys.stdout.flush()


def print_text(event: Event) -> None:
    """The text that an event adds."""
    match event.payload:
        case TokenPicked(text=text) | Ended(tail=text):
            sys.stdout.write(text)
            sys.stdout.flush()
        case _:
            pass


def print_ending(run: RunDetail) -> None:
    """Why the run ended and how it went."""
    sys.stdout.write("\n")
    sys.stdout.flush()
    say(f"[{ending(run.stop)}, {facts(run)}]")


def ending(stop: StopRecord | None) -> str:
    if stop is None:
        return "not ended"
    matched = f" {stop.matched!r}" if stop.matched is not None else ""
    token = f" (token {stop.token_id})" if stop.token_id is not None else ""
    message = f": {stop.message}" if stop.message else ""
    return f"{stop.reason}{matched}{token}{message}"


def facts(run: RunDetail) -> str:
    parts = [f"{len(run.tokens)} tokens"]
    timing = run.ended.timing if run.ended else None
    if timing and timing.ttft_ms is not None:
        parts.append(f"first after {timing.ttft_ms:.0f} ms")
    if timing and timing.tokens_per_s is not None:
        parts.append(f"{timing.tokens_per_s:.1f} tokens/s")
    parts += [f"seed {run.settings.seed}", f"run {run.id}"]
    return ", ".join(parts)


def print_comparison(runs: Sequence[RunDetail]) -> None:
    """Every arm's text and figures, and where it first leaves the baseline."""
    references = {run.sample_index: run for run in runs if not run.arm_index}
    for run in runs:
        values = figures(run.tokens)
        changed = run.settings.changed() or "neutral"
        typer.echo(f"--- arm {run.arm_index or 0}, seed {run.settings.seed}: {changed}")
        typer.echo(run.text)
        mean = "" if values.mean_logprob is None else f", mean raw log-probability {values.mean_logprob:.3f}"
        typer.echo(f"    [{ending(run.stop)}, {values.num_tokens} tokens{mean}]")
        reference = references[run.sample_index]
        found = first_divergence(reference.tokens, run.tokens)
        if found is not None:
            typer.echo(f"    {explain(found, a='arm 0', b=f'arm {run.arm_index}')}")


def print_page(page: RunPage) -> None:
    for row in page.rows:
        typer.echo(_line(row))
    if page.next is not None:
        say(f"more: --before {page.next}")


def print_run(run: RunDetail) -> None:
    """A run's facts, text and tokens."""
    typer.echo(f"run         {run.id} ({run.status})")
    typer.echo(f"checkpoint  {run.checkpoint}")
    typer.echo(f"settings    {run.settings.changed() or 'neutral'}, seed {run.settings.seed}")
    typer.echo(f"prompt      {run.prompt!r}")
    if run.fork_position is not None:
        parent = run.parent_id or "a run that is deleted"
        typer.echo(f"branch      of {parent} at token {run.fork_position}; {len(run.opening_ids)} tokens were given")
    typer.echo(f"text        {run.text!r}")
    typer.echo(f"ended       {ending(run.stop)}")
    print_tokens(run)


def print_score(run: RunDetail) -> None:
    """A scored text's tokens, and what they come to."""
    print_tokens(run)
    found = score_figures(run.tokens, is_greedy=run.settings.is_greedy)
    typer.echo(f"raw         {_sum(found.raw_logprob, found.raw_perplexity)}")
    typer.echo(f"processed   {_sum(found.logprob, found.perplexity)}")
    if (first := found.first_impossible) is not None:
        typer.echo(f"impossible  at token {first.position}, {first.piece!r}: {first.stage} removes it")
    say(f"[{ending(run.stop)}, {facts(run)}]")


def _sum(logprob: float | None, perplexity: float | None) -> str:
    if logprob is None:
        return "impossible"
    shown = "beyond measure" if perplexity is None else f"{perplexity:.3f}"
    return f"log-probability {logprob:.3f}, perplexity {shown}"


def print_tokens(run: RunDetail) -> None:
    """One line a token."""
    typer.echo("position  token     piece               raw       processed  rank")
    for token in run.tokens:
        row = f"{token.position:8}  {token.token_id:8}  {token.piece!r:18}"
        processed = "impossible" if token.logprob is None else f"{token.logprob:10.3f}"
        typer.echo(f"{row}  {token.raw_logprob:8.3f}  {processed}  {token.rank:4}")


def print_checks(checks: Iterable[Check]) -> None:
    for check in checks:
        typer.echo(f"{'ok     ' if check.is_ok else 'missing'}  {check.name}: {check.detail}")
        if not check.is_ok and check.advice:
            typer.echo(f"         {check.advice}")


def summary_json(row: RunSummary) -> dict[str, Any]:
    return {
        "id": row.id,
        "created_at": row.created_at.isoformat(),
        "checkpoint": row.checkpoint,
        "prompt_start": row.prompt_start,
        "text_start": row.text_start,
        "changed": row.changed,
        "seed": row.seed,
        "status": row.status.value,
        "stop_reason": row.stop_reason.value if row.stop_reason else None,
        "num_tokens": row.num_tokens,
        "mean_logprob": row.mean_logprob,  # raw, under the name that it has always had here
        "raw_mean_logprob": row.mean_logprob,
        "tokens_per_s": row.tokens_per_s,
        "experiment_id": row.experiment_id,
        "arm_index": row.arm_index,
        "parent_id": row.parent_id,
        "fork_position": row.fork_position,
        "title": row.title,
        "is_starred": row.is_starred,
        "tags": list(row.tags),
    }


def _line(row: RunSummary) -> str:
    time = row.created_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    state = row.stop_reason or row.status
    text = f"{_short(row.prompt_start)} -> {_short(row.text_start)}"
    return f"{row.id}  {time}  {state:16} {row.num_tokens:5}  {text}"


def _short(text: str) -> str:
    return repr(text if len(text) <= _NUM_CHARACTERS else text[: _NUM_CHARACTERS - 3] + "...")
