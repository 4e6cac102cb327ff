"""Exported runs read back: first a preview of what would be added, then the same in earnest.

A file is read line by line and never held whole. A line that cannot be taken is told by its number and its reason, and
the others go on. Each run enters in one transaction, with all of its tokens or not at all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import orjson
from sqlalchemy import JSON, delete, inspect, select, update
from sqlalchemy.exc import StatementError
from sqlalchemy.orm import Session

from app.run_checks import check_facts, check_fits, check_tokens
from app.run_export import FORMAT, UNSAVED
from models.db.base import UtcDateTime, unescape_text
from models.db.experiments import Experiment
from models.db.ledger import token_row
from models.db.runs import Run, Token
from models.db.session import Database
from models.errors import EventError, RefusedError
from models.events import Event, Status, TokenPicked, from_json

MAX_LINE_BYTES: Final = 64_000_000
_MAX_TOLD: Final = 20
_LISTS: Final = {"messages", "prompt_token_ids", "opening_ids", "milestones", "tags"}  # of the columns that hold JSON
_BROKEN: Final = (ValueError, TypeError, LookupError, AttributeError, EventError, msgspec.MsgspecError)


@dataclass(slots=True)
class Findings:
    """What a file has: runs that are new (added, unless it is a preview), runs that are here, and lines without one."""

    num_new: int = 0
    num_here: int = 0
    num_refused: int = 0
    refused: list[str] = field(default_factory=list)  # the first reasons, with their line
    num_orphans: int = 0  # new ones whose parent is neither here nor in the file
    first_prompts: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "new": self.num_new,
            "here": self.num_here,
            "refused": self.num_refused,
            "reasons": self.refused,
            "orphans": self.num_orphans,
            "first_prompts": self.first_prompts,
        }


@dataclass(frozen=True, slots=True)
class Arriving:
    """One run of a file, checked, as rows."""

    run: dict[str, Any]
    experiment: dict[str, Any] | None
    tokens: list[dict[str, Any]]


class RunImport:
    """Reads one file's lines, one after the other."""

    def __init__(self, database: Database, *, is_preview: bool) -> None:
        self._database = database
        self._is_preview = is_preview
        self._parents: dict[str, str] = {}
        self._seen: set[str] = set()
        self._number = 0
        self.findings = Findings()

    def take(self, line: bytes) -> None:
        """The next line. Raises DatabaseUnavailableError."""
        self._number += 1
        if not line.strip():
            return
        try:
            arriving = arriving_of(line)
            self._enter(arriving)
        except RefusedError as exc:
            self.findings.num_refused += 1
            if len(self.findings.refused) < _MAX_TOLD:
                self.findings.refused.append(f"line {self._number}: {exc.message}")

    def finish(self) -> Findings:
        """After the last line: a run that was made from another one knows it again where that one is here."""
        with self._database.read() as session:
            asked = list(set(self._parents.values()))
            here = {i for part in _parts(asked) for i in session.scalars(select(Run.id).where(Run.id.in_(part)))}
        here |= self._seen
        self.findings.num_orphans = sum(parent not in here for parent in self._parents.values())
        if not self._is_preview:
            with self._database.write() as session:
                for run_id, parent in self._parents.items():
                    if parent in here:
                        session.execute(update(Run).where(Run.id == run_id).values(parent_id=parent))
        return self.findings

    def _enter(self, arriving: Arriving) -> None:
        run_id = arriving.run["id"]
        with self._database.read() as session:
            is_here = session.scalar(select(Run.id).where(Run.id == run_id, Run.deleted_at.is_(None))) is not None
        if is_here or run_id in self._seen:
            self.findings.num_here += 1
            return
        parent = arriving.run.pop("parent_id", None)
        if not self._is_preview:
            self._save(arriving)
        if parent is not None:
            self._parents[run_id] = parent
        self._seen.add(run_id)
        self.findings.num_new += 1
        if len(self.findings.first_prompts) < 5:
            self.findings.first_prompts.append(arriving.run["prompt"][:80])

    def _save(self, arriving: Arriving) -> None:
        try:
            with self._database.write() as session:
                _save(session, arriving)
        except StatementError as exc:
            reason = str(exc.orig or exc).strip().splitlines()[0]
            raise RefusedError(f"the database does not take the run ({reason[:200]})") from exc


def arriving_of(line: bytes) -> Arriving:
    """One exported run. Raises RefusedError saying why it is none that can be taken."""
    if len(line) > MAX_LINE_BYTES:
        raise RefusedError(f"it has {len(line):,} bytes; a run has at most {MAX_LINE_BYTES:,}")
    try:
        values = orjson.loads(line)
    except ValueError as exc:
        raise RefusedError(f"it is no JSON ({exc})") from exc
    record = values.get("record") if isinstance(values, dict) else None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise RefusedError("it is no exported run: it has no record of format 1; export it with this version")
    try:
        return _checked(values, record)
    except RefusedError:
        raise
    except _BROKEN as exc:
        raise RefusedError(f"the run is damaged ({type(exc).__name__}: {str(exc)[:200]})") from exc


def _checked(values: Mapping[str, Any], record: Mapping[str, Any]) -> Arriving:
    run = _columns(Run, record["run"])
    status = Status(run["status"])
    if not status.is_terminal:
        raise RefusedError(f"run {run['id']} was {status} when it was exported; only ended runs can be imported")
    check_facts(run)
    experiment = None if record.get("experiment") is None else _columns(Experiment, record["experiment"])
    if (experiment or {"id": None})["id"] != run["experiment_id"]:
        raise ValueError("the comparison is another one")
    told = zip(record["told"], values["tokens"], strict=True)
    tokens = [token_row(Event(run["id"], attempt, seq, _token(token))) for (seq, attempt), token in told]
    check_tokens(run, tokens)
    # Nobody waits for its news here.
    return Arriving({**run, "ended_published": True, "cancel_requested": False}, experiment, tokens)


def _columns(table: type[Run] | type[Experiment], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the columns of this version; what a newer one had more is left out."""
    found: dict[str, Any] = {}
    mapper: Any = inspect(table)
    for column in mapper.columns:
        if column.key in UNSAVED or column.key not in values:
            continue
        value = values[column.key]
        if value is None and not column.nullable:
            raise ValueError(f"{column.key} is missing")
        if isinstance(column.type, UtcDateTime) and value is not None:
            value = _time(value)
        elif isinstance(value, str):
            value = unescape_text(value)
        if value is not None and not isinstance(value, _kind(column)):
            raise ValueError(f"{column.key} is {value!r:.60}")
        found[column.key] = value
    check_fits(table, found)
    return found


def _time(text: str) -> datetime:
    """Raises ValueError, also for a time without its zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"the time {text} has no zone")
    return time.astimezone(UTC)


def _kind(column: Any) -> Any:
    if isinstance(column.type, JSON):
        return list if column.key in _LISTS else dict
    kind = column.type.python_type
    return (int, float) if kind is float else kind


def _token(values: Mapping[str, Any]) -> TokenPicked:
    """The inverse of the JSON of a token."""
    plain = {name: value for name, value in values.items() if name != "bytes"}
    return from_json(TokenPicked, {**plain, "token_bytes": values["bytes"]})


def _save(session: Session, arriving: Arriving) -> None:
    run_id = arriving.run["id"]
    branch_ids = list(session.scalars(select(Run.id).where(Run.parent_id == run_id)))
    session.execute(delete(Run).where(Run.id == run_id, Run.deleted_at.is_not(None)))
    if arriving.experiment is not None:
        there = session.get(Experiment, arriving.experiment["id"])
        if there is None:
            session.add(Experiment(**arriving.experiment))
        else:
            there.deleted_at = None
        session.flush()
    session.add(Run(**arriving.run))
    session.flush()
    session.add_all(Token(**row) for row in arriving.tokens)
    # The deletion took their parent from them.
    session.execute(update(Run).where(Run.id.in_(branch_ids)).values(parent_id=run_id))


def _parts(ids: list[str]) -> Iterable[list[str]]:
    return (ids[i : i + 500] for i in range(0, len(ids), 500))


def run_import(database: Database, lines: Iterable[bytes], *, is_preview: bool) -> Findings:
    """Read a whole file. Raises DatabaseUnavailableError; what was added before that stays, and is `here` next time."""
    reading = RunImport(database, is_preview=is_preview)
    for line in lines:
        reading.take(line)
    return reading.finish()
