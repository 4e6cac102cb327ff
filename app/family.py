"""The tree of runs that a run belongs to: what it branched from, and what branched from that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, aliased

from models.db.runs import Run, Token
from models.events import Status, StopReason

MAX_RELATIVES: Final = 200
MAX_GENERATIONS: Final = 100
_NUM_SHOWN_TOKENS: Final = 12


@dataclass(frozen=True, slots=True)
class Relative:
    """One run of the tree."""

    id: str
    parent_id: str | None  # None for the one that the others come from
    fork_position: int | None  # where it leaves its parent
    start: str  # its text from there on, the first few tokens
    status: Status
    stop_reason: StopReason | None
    num_tokens: int


def family(session: Session, run_id: str) -> list[Relative]:
    """The run, its ancestors and all their branches, the eldest first; at most MAX_RELATIVES.

    What is deleted is not there, and parts what hung on it.
    """
    rows = [session.execute(_facts().where(Run.id == _eldest(session, run_id))).one()]
    generation = [rows[0].id]
    while generation and len(rows) < MAX_RELATIVES:
        query = (
            _facts()
            .where(Run.parent_id.in_(generation), Run.deleted_at.is_(None))
            .order_by(Run.id)
            .limit(MAX_RELATIVES - len(rows))
        )
        found = session.execute(query).all()
        rows += found
        generation = [row.id for row in found]
    starts = _starts(session, [row.id for row in rows])
    return [
        Relative(
            id=row.id,
            parent_id=row.parent_id if number else None,
            fork_position=row.fork_position,
            start=starts.get(row.id, ""),
            status=Status(row.status),
            stop_reason=None if row.stop_reason is None else StopReason(row.stop_reason),
            num_tokens=row.num_tokens,
        )
        for number, row in enumerate(rows)
    ]


def _facts() -> Select[str, str | None, int | None, str, str | None, int]:
    return select(Run.id, Run.parent_id, Run.fork_position, Run.status, Run.stop_reason, Run.num_tokens)


def _eldest(session: Session, run_id: str) -> str:
    parent = aliased(Run)
    for _ in range(MAX_GENERATIONS):
        parent_id = session.scalar(
            select(parent.id).join(Run, Run.parent_id == parent.id).where(Run.id == run_id, parent.deleted_at.is_(None))
        )
        if parent_id is None:
            break
        run_id = parent_id
    return run_id


def _starts(session: Session, run_ids: Sequence[str]) -> dict[str, str]:
    fork = func.coalesce(Run.fork_position, 0)
    query = (
        select(Token.run_id, Token.piece)
        .join(Run, Run.id == Token.run_id)
        .where(Token.run_id.in_(run_ids), Token.position >= fork, Token.position < fork + _NUM_SHOWN_TOKENS)
        .order_by(Token.run_id, Token.position)
    )
    starts: dict[str, str] = {}
    for run_id, piece in session.execute(query):
        starts[run_id] = starts.get(run_id, "") + piece
    return starts
