"""The pages over a real history in an SQLite file; only workers and queue are scripted."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import uuid_utils
from fastapi import FastAPI
from sqlalchemy import delete, select

from app.api.transfer import build_transfer_router
from app.history import History
from app.main import with_pages
from app.parts import Parts
from models.db.base import database_now
from models.db.experiments import Experiment
from models.db.ledger import token_row
from models.db.runs import Run, Token
from models.db.session import Database
from models.events import StopReason, TokenPicked, to_json
from models.sampling import Settings
from tests.e2e.server import ServerThread
from tests.fakes.app import FakeStack
from tests.fakes.rows import new_run
from tests.unit.app.runs import events, token


@dataclass
class Saved:
    """A database that a test fills, and what the page made of it."""

    database: Database
    url: str

    def clear(self) -> None:
        with self.database.write() as session:
            for table in (Token, Run, Experiment):
                session.execute(delete(table))

    def run(
        self, prompt: str = "p", text: str = " a text", *, reason: StopReason = StopReason.EOS, **columns: Any
    ) -> str:
        """An ended run with two tokens; its id."""
        run_id = str(uuid_utils.uuid7())
        told = events(run_id, [token(0, 1, text=text[:2]), token(1, 2, text=text[2:])], reason)
        values = {
            "status": reason.status.value,
            "stop_reason": reason.value,
            "stop": to_json(told[-1].payload.stop),  # type: ignore[union-attr]
            "text": text,
            "num_tokens": 2,
            "mean_logprob": -0.5,
            "tokens_per_s": 24.0,
            "mean_entropy": 1.25,
            "ended_at": database_now(),
            "milestones": [to_json_event(e) for e in told if not isinstance(e.payload, TokenPicked)],
            **columns,
        }
        with self.database.write() as session:
            session.add(new_run(id=run_id, prompt=prompt, **values))
            session.flush()
            session.add_all(Token(**token_row(e)) for e in told if isinstance(e.payload, TokenPicked))
        return run_id

    def comparison(self, prompt: str, num_arms: int) -> tuple[str, list[str]]:
        """A comparison whose arms differ in top_k; its id and theirs."""
        experiment_id = str(uuid_utils.uuid7())
        with self.database.write() as session:
            session.add(
                Experiment(
                    id=experiment_id, created_at=database_now(), checkpoint="scripted", prompt=prompt, num_arms=num_arms
                )
            )
        arms = [
            self.run(
                prompt, experiment_id=experiment_id, arm_index=i, sample_index=0, settings=Settings(seed=1, top_k=i)
            )
            for i in range(num_arms)
        ]
        return experiment_id, arms

    def row(self, run_id: str) -> Run | None:
        with self.database.read() as session:
            return session.get(Run, run_id)

    def ids(self) -> set[str]:
        """Of the runs that are not deleted."""
        with self.database.read() as session:
            return set(session.scalars(select(Run.id).where(Run.deleted_at.is_(None))))


def to_json_event(event: Any) -> Any:
    """An event as the table of runs holds it."""
    return orjson.loads(event.encode())


@contextmanager
def serving(path: Path) -> Iterator[Saved]:
    """The pages over the database in this file, for the time of the block."""
    database = Database(f"sqlite:///{path}")
    stack = FakeStack()
    app = FastAPI()
    app.include_router(build_transfer_router(database))
    parts = Parts(stack, stack, stack, History(database), stack, stack)
    server = ServerThread(with_pages(app, parts, ("scripted", "other")))
    server.start()
    try:
        yield Saved(database, server.url)
    finally:
        server.stop()
        database.close()
