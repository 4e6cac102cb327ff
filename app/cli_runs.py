"""`decodelab runs`: the saved runs, listed, shown, exported, imported and deleted."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from app.console import print_json, print_page, print_run, say, summary_json
from app.exits import AsJson, answering
from app.history import History, RunFilter
from app.run_export import json_line, json_lines
from app.run_import import run_import
from app.run_json import run_json
from app.settings import AppSettings
from models.db.session import Database
from models.errors import RefusedError
from models.events import Status, StopReason

runs_app = typer.Typer(no_args_is_help=True, help="The saved runs.")

Text = Annotated[str, typer.Option("--text", help='Only runs with these words (par*) or "phrases".')]
Checkpoint = Annotated[str | None, typer.Option("--checkpoint", help="Only runs of this checkpoint.")]
Stop = Annotated[StopReason | None, typer.Option("--stop", help="Only runs that ended for this reason.")]
State = Annotated[Status | None, typer.Option("--status", help="Only runs in this state.")]
Ids = Annotated[list[str], typer.Argument(help="Run ids.")]


@runs_app.command("list")
def list_runs(  # noqa: PLR0913 - one parameter an option
    text: Text = "",
    checkpoint: Checkpoint = None,
    stop: Stop = None,
    status: State = None,
    *,
    before: Annotated[str | None, typer.Option("--before", help="Only runs older than this one.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500)] = 50,
    as_json: AsJson = False,
) -> None:
    """The newest runs, one a line."""
    with answering(as_json), _history() as history:
        page = history.page(RunFilter(text, checkpoint, stop, status), before=before, limit=limit)
        if as_json:
            print_json({"runs": [summary_json(row) for row in page.rows], "next": page.next})
        else:
            print_page(page)


@runs_app.command()
def show(run_id: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """One run whole."""
    with answering(as_json), _history() as history:
        run = history.run(run_id)
        if as_json:
            print_json(run_json(run))
        else:
            print_run(run)


@runs_app.command()
def export(
    ids: Annotated[list[str] | None, typer.Argument(help="Run ids; without any, all that the options choose.")] = None,
    text: Text = "",
    checkpoint: Checkpoint = None,
    stop: Stop = None,
    *,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file; else standard output.")] = None,
) -> None:
    """Runs as JSON lines, each like `runs show --json` with what an import needs besides."""
    with answering(False), _history() as history:
        lines = (
            (json_line(history.database, run_id) for run_id in ids)
            if ids
            else json_lines(history.database, history.ids(RunFilter(text, checkpoint, stop)))
        )
        if output is None:
            for line in lines:
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        else:
            say(f"{_write(output, lines)} runs written to {output}")


@runs_app.command("import")
def import_runs(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="What `runs export` or the page has written.")],
    is_preview: Annotated[bool, typer.Option("--preview", help="Say what would be added, and add nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add exported runs; those that are here already stay as they are."""
    with answering(as_json), _history() as history:
        try:
            with path.open("rb") as lines:
                findings = run_import(history.database, lines, is_preview=is_preview)
        except OSError as exc:
            raise RefusedError(f"{path} cannot be read ({exc.strerror}); name another file.", field="file") from exc
        if as_json:
            print_json({"preview": is_preview, **findings.as_dict()})
            return
        for reason in findings.refused:
            say(reason)
        verb = "would be added" if is_preview else "added"
        say(f"{findings.num_new} {verb}, {findings.num_here} already here, {findings.num_refused} refused")


@runs_app.command()
def delete(ids: Ids, as_json: AsJson = False) -> None:
    """Delete ended runs with their tokens."""
    with answering(as_json), _history() as history:
        for run_id in ids:
            history.delete(run_id)
        if as_json:
            print_json({"deleted": ids})
        else:
            say(f"{len(ids)} deleted")


@contextmanager
def _history() -> Iterator[History]:
    database = Database(AppSettings.load().database_url, pool_size=2)
    try:
        yield History(database)
    finally:
        database.close()


def _write(path: Path, lines: Iterator[bytes]) -> int:
    """Write all lines or none; returns their number. Raises RefusedError where the file cannot be written."""
    draft = path.with_name(path.name + ".part")
    count = 0
    try:
        with draft.open("wb") as out:
            for line in lines:
                out.write(line)
                count += 1
        draft.replace(path)
    except OSError as exc:
        raise RefusedError(f"{path} cannot be written ({exc.strerror}); choose another file.", field="output") from exc
    return count
