"""Saved runs as files: JSON lines that can be imported again, exactly, and a table for spreadsheets.

A JSON line is what `decodelab runs show --json` prints, and under `record` what else the database holds: the columns as
they are, the events other than tokens, and the `seq` and attempt of each token. Nothing is rounded on the way.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import orjson
from sqlalchemy import inspect

from app.history import History
from app.ids import check_id, not_found
from app.record import RunDetail, detail, saved_events
from app.run_json import run_json
from models.db.base import escape_text
from models.db.experiments import Experiment
from models.db.runs import SETTINGS, Run
from models.db.session import Database
from models.errors import DecodeLabError, NotFoundError, UnavailableError
from models.events import TokenPicked

FORMAT: Final = 1
UNSAVED: Final = frozenset(
    {"lease_owner", "lease_until", "deleted_at", "ended_published", "cancel_requested", *SETTINGS}
)
"""Columns of a run that say nothing once it has ended, or only here, or what its settings say."""
BOM: Final = b"\xef\xbb\xbf"  # without it a spreadsheet takes UTF-8 for another encoding
CSV_COLUMNS: Final = (
    "id", "created_at", "kind", "checkpoint", "title", "note", "tags", "starred", "prompt", "text", "settings", "seed",
    "status", "stop_reason", "num_prompt_tokens", "num_tokens", "ttft_ms", "tokens_per_s", "mean_raw_logprob",
    "min_raw_logprob", "max_rank", "mean_raw_entropy", "experiment_id", "arm", "sample", "parent_id",
    "fork_position", "opening_ids",
)  # fmt: skip
# What a spreadsheet may take for the beginning of a formula, wide forms included.
_FORMULA: Final = ("=", "+", "-", "@", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}", "\N{MINUS SIGN}",
                   "\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}")  # fmt: skip


def json_lines(database: Database, run_ids: Iterable[str]) -> Iterator[bytes]:
    """One line a run, read when it is asked for; a run that is gone is left out, and one that is damaged says so."""
    for run_id in run_ids:
        try:
            yield json_line(database, run_id)
        except NotFoundError:
            continue
        except UnavailableError:
            raise
        except DecodeLabError as exc:
            yield orjson.dumps({"id": run_id, **exc.as_dict()}) + b"\n"


def json_line(database: Database, run_id: str) -> bytes:
    """Raises NotFoundError, and DecodeLabError for a run whose saved events or texts are damaged."""
    with database.read() as session:
        run = session.get(Run, check_id(run_id, of="run"))
        if run is None or run.deleted_at is not None:
            raise not_found(run_id, of="run")
        shown = detail(run, saved_events(session, run))
        experiment = None if run.experiment_id is None else session.get(Experiment, run.experiment_id)
        values = {**run_json(shown), "record": _record(run, shown, experiment)}
    try:
        return orjson.dumps(values) + b"\n"
    except TypeError as exc:  # half a surrogate pair, which no door lets in
        raise DecodeLabError(f"Run {run_id} holds what is no text, so it cannot be exported ({exc}).") from exc


def csv_lines(database: Database, run_ids: Iterable[str]) -> Iterator[bytes]:
    """A head and one line a run; no cell is a formula. A run that is not there any more is left out."""
    yield BOM + _csv(CSV_COLUMNS)
    for run_id in run_ids:
        try:
            yield csv_line(database, run_id)
        except NotFoundError:
            continue


def csv_line(database: Database, run_id: str) -> bytes:
    """One run as a line of the table. Raises NotFoundError."""
    with database.read() as session:
        run = session.get(Run, check_id(run_id, of="run"))
        if run is None or run.deleted_at is not None:
            raise not_found(run_id, of="run")
        shown = detail(run, saved_events(session, run) if run.ended_at is None else [])
    settings = orjson.dumps(shown.settings.changed()).decode()
    opening = None if run.opening_ids is None else orjson.dumps(run.opening_ids).decode()
    return _csv(
        (
            run.id, run.created_at.isoformat(), run.kind, run.checkpoint, run.title, run.note, ", ".join(run.tags),
            "yes" if run.is_starred else "", run.prompt, shown.text, settings, run.seed, run.status, run.stop_reason,
            run.num_prompt_tokens, run.num_tokens, run.ttft_ms, run.tokens_per_s, run.mean_logprob, run.min_logprob,
            run.max_rank, run.mean_entropy, run.experiment_id, run.arm_index, run.sample_index, run.parent_id,
            run.fork_position, opening,
        )
    )  # fmt: skip


def safe_cell(value: Any) -> Any:
    """A text that a spreadsheet might carry out, behind an apostrophe; a number or another text as it is."""
    if not isinstance(value, str):
        return value
    # What is not seen before it does not keep a spreadsheet from it: spaces, controls, marks of no width.
    first = next((c for c in value if c.isprintable() and not c.isspace()), "")
    is_risky = first in _FORMULA or value[:1] in ("\t", "\r", "\n")
    return "'" + value if is_risky else value


def chosen(history: History, run_ids: Sequence[str], experiment_ids: Sequence[str]) -> list[str]:
    """The ids of these runs and of the runs of these comparisons, each once. Raises NotFoundError for no id."""
    ids = [*(check_id(i, of="run") for i in run_ids), *(row.id for e in experiment_ids for row in history.arms(e).rows)]
    return list(dict.fromkeys(ids))


def _csv(cells: Sequence[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow([safe_cell(cell) for cell in cells])
    return out.getvalue().encode("utf-8", "backslashreplace")


def _record(run: Run, shown: RunDetail, experiment: Experiment | None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "run": columns_of(run),
        "experiment": None if experiment is None else columns_of(experiment),
        # A token's own line does not say when in the run's story it was told.
        "told": [[e.seq, e.attempt] for e in shown.events if isinstance(e.payload, TokenPicked)],
    }


def columns_of(row: Run | Experiment) -> dict[str, Any]:
    """The columns as JSON values; texts with the database's escape where JSON cannot hold them."""
    mapper: Any = inspect(type(row))
    names = [column.key for column in mapper.columns if column.key not in UNSAVED]
    return {name: _json_value(getattr(row, name)) for name in names}


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return escape_text(value) if isinstance(value, str) else value
