"""What a person does to saved runs: a star, tags, a title, a note; deletion, its undoing, and the purge after it."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from app.ids import check_id, not_found
from models.db.base import database_now
from models.db.experiments import Experiment
from models.db.runs import Run
from models.db.session import Database
from models.errors import LimitError, RefusedError
from models.events import Status

MAX_TAGS: Final = 16
MAX_TAG_CHARACTERS: Final = 40
MAX_TITLE_CHARACTERS: Final = 200
MAX_NOTE_CHARACTERS: Final = 4000
MAX_CHOSEN: Final = 500
"""So many runs may be changed at once."""
UNDO_S: Final = 60
_PURGED_AT_ONCE: Final = 50
_ACTIVE: Final = (Status.QUEUED.value, Status.RUNNING.value)


@dataclass(frozen=True, slots=True)
class Discarded:
    """What a deletion hid, so that it can be undone, and how many runs it left because they have not ended."""

    run_ids: tuple[str, ...]
    experiment_ids: tuple[str, ...]
    num_active: int


class RunChanges:
    """Every method raises DatabaseUnavailableError when there is no answer, NotFoundError for what is no id of a run.

    Runs that are not there, or deleted, are passed over.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def database(self) -> Database:
        return self._database

    def star(self, run_ids: Sequence[str], experiment_ids: Sequence[str] = (), *, is_starred: bool) -> None:
        """Star runs and comparisons, or take the star away. That of a comparison says nothing of its runs."""
        experiments = [check_id(i, of="comparison") for i in _bounded(experiment_ids)]
        there = (Experiment.id.in_(experiments), Experiment.deleted_at.is_(None))
        with self._database.write() as session:
            session.execute(update(Run).where(*_chosen(run_ids)).values(is_starred=is_starred))
            session.execute(update(Experiment).where(*there).values(is_starred=is_starred))

    def add_tag(self, run_ids: Sequence[str], tag: str) -> None:
        """Raises RefusedError for what is no tag, and LimitError where a run has MAX_TAGS; nothing is changed then."""
        tag = check_tag(tag)
        self._retag(run_ids, lambda tags: tags if tag in tags else [*tags, tag])

    def remove_tag(self, run_ids: Sequence[str], tag: str) -> None:
        self._retag(run_ids, lambda tags: [t for t in tags if t != tag])

    def describe(
        self, item_id: str, *, of: str, title: str, note: str | None = None, tags: Sequence[str] | None = None
    ) -> None:
        """Set the title and, unless None, note and tags `of` a "run" or a "comparison" (which has no tags).

        White space alone is none. Raises RefusedError; nothing is changed then.
        """
        table = Run if of == "run" else Experiment
        values: dict[str, Any] = {"title": _line(title, MAX_TITLE_CHARACTERS, field="title")}
        if note is not None:
            values["note"] = _line(note, MAX_NOTE_CHARACTERS, field="note")
        if tags is not None:
            values["tags"] = _bounded_tags(list(dict.fromkeys(check_tag(tag) for tag in tags)))
        with self._database.write() as session:
            there = (table.id == check_id(item_id, of=of), table.deleted_at.is_(None))
            if session.scalar(select(table.id).where(*there)) is None:
                raise not_found(item_id, of=of)
            session.execute(update(table).where(*there).values(**values))

    def discard(self, run_ids: Sequence[str], experiment_ids: Sequence[str] = ()) -> Discarded:
        """Hide ended runs, and comparisons with theirs; what has not ended stays. `restore` undoes it for a minute.

        A comparison whose last run goes is hidden with it.
        """
        experiments = [check_id(i, of="comparison") for i in _bounded(experiment_ids)]
        wanted = Run.id.in_(_ids(run_ids)) | Run.experiment_id.in_(experiments)
        with self._database.write() as session:
            columns = select(Run.id, Run.status, Run.experiment_id)
            found = session.execute(columns.where(wanted, Run.deleted_at.is_(None))).all()
            hidden = [row.id for row in found if row.status not in _ACTIVE]
            num_active = len(found) - len(hidden)
            for part in _chunks(hidden):
                session.execute(update(Run).where(Run.id.in_(part)).values(deleted_at=database_now()))
            gone = _emptied(session, {*experiments, *(row.experiment_id for row in found if row.experiment_id)})
            session.execute(update(Experiment).where(Experiment.id.in_(gone)).values(deleted_at=database_now()))
        return Discarded(tuple(hidden), tuple(gone), num_active)

    def restore(self, run_ids: Sequence[str], experiment_ids: Sequence[str] = ()) -> int:
        """Take a deletion back; the number of runs that are there again. What was purged since is gone."""
        with self._database.write() as session:
            deleted = (Experiment.id.in_(list(experiment_ids)), Experiment.deleted_at.is_not(None))
            session.execute(update(Experiment).where(*deleted).values(deleted_at=None))
            number = 0
            for part in _chunks([check_id(i, of="run") for i in run_ids]):
                back = update(Run).where(Run.id.in_(part), Run.deleted_at.is_not(None)).values(deleted_at=None)
                number += len(session.scalars(back.returning(Run.id)).all())
        return number

    def purge(self, *, age_s: float = UNDO_S) -> int:
        """Remove some of the runs that were deleted more than `age_s` ago, tokens and all; how many."""
        old = Run.deleted_at < database_now(plus_s=-age_s)
        with self._database.read() as session:
            ids = session.scalars(select(Run.id).where(old).limit(_PURGED_AT_ONCE)).all()
            is_more = session.scalar(
                select(func.count()).select_from(Experiment).where(Experiment.deleted_at < database_now(plus_s=-age_s))
            )
        if ids or is_more:
            with self._database.write() as session:
                session.execute(delete(Run).where(Run.id.in_(ids), old))
                empty = ~select(Run.id).where(Run.experiment_id == Experiment.id).correlate(Experiment).exists()
                gone = Experiment.deleted_at < database_now(plus_s=-age_s)
                session.execute(delete(Experiment).where(gone, empty))
        return len(ids)

    def delete(self, run_id: str) -> None:
        """Delete an ended run with its tokens for good. Raises RefusedError for a run that is active."""
        with self._database.write() as session:
            there = (Run.id == check_id(run_id, of="run"), Run.deleted_at.is_(None))
            status = session.scalar(select(Run.status).where(*there))
            if status is None:
                raise not_found(run_id, of="run")
            if not Status(status).is_terminal:
                raise RefusedError(f"Run {run_id} is {status}; stop it first, then delete it.", field="id")
            session.execute(delete(Run).where(Run.id == run_id))

    def _retag(self, run_ids: Sequence[str], change: Callable[[list[Any]], list[Any]]) -> None:
        with self._database.write() as session:
            for run in session.execute(select(Run.id, Run.tags).where(*_chosen(run_ids)).with_for_update()):
                tags = _bounded_tags(change(run.tags))
                if tags != run.tags:
                    session.execute(update(Run).where(Run.id == run.id).values(tags=tags))


def check_tag(tag: str) -> str:
    """The tag without white space around it. Raises RefusedError for one that is empty, too long or of two lines."""
    tag = " ".join(tag.split())
    if not tag or len(tag) > MAX_TAG_CHARACTERS or "," in tag or not _is_text(tag):
        raise RefusedError(
            f"A tag has 1 to {MAX_TAG_CHARACTERS} characters and no comma; {tag[:60]!r} is none.", field="tag"
        )
    return tag


def _bounded_tags(tags: list[Any]) -> list[Any]:
    if len(tags) > MAX_TAGS:
        raise LimitError(f"A run has at most {MAX_TAGS} tags; these would be {len(tags)}.", field="tag")
    return tags


def _line(text: str, limit: int, *, field: str) -> str | None:
    text = text.strip()
    if len(text) > limit or not _is_text(text):
        raise RefusedError(
            f"A {field} is text of at most {limit:,} characters; this one has {len(text):,}.", field=field
        )
    return text or None


def _is_text(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def _chosen(run_ids: Sequence[str]) -> tuple[Any, ...]:
    return Run.id.in_(_ids(run_ids)), Run.deleted_at.is_(None)


def _ids(run_ids: Sequence[str]) -> list[str]:
    return [check_id(run_id, of="run") for run_id in _bounded(run_ids)]


def _bounded(ids: Sequence[str]) -> Sequence[str]:
    if len(ids) > MAX_CHOSEN:
        raise LimitError(f"{len(ids):,} are chosen and at most {MAX_CHOSEN} can be changed at once.", field="id")
    return ids


def _chunks(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    """SQLite takes a limited number of values in one statement."""
    return (ids[i : i + MAX_CHOSEN] for i in range(0, len(ids), MAX_CHOSEN))


def _emptied(session: Session, experiment_ids: Collection[str]) -> list[str]:
    """Those of the comparisons that have no run left to show."""
    left = select(Run.id).where(Run.experiment_id == Experiment.id, Run.deleted_at.is_(None)).correlate(Experiment)
    query = select(Experiment.id).where(Experiment.id.in_(experiment_ids), ~left.exists())
    return list(session.scalars(query))
