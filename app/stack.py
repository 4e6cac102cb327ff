"""The running stack as a command sees it: clients for the database and Redis, and a run watched to its end."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from app.follow import Follower
from app.history import History
from app.serving import Serving
from app.settings import AppSettings
from app.submit import Submitter
from models.db.session import Database
from models.events import Event

_CANCEL_WAIT_S: Final = 10.0

OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Stack:
    """What a command needs of the stack, built from plain settings."""

    database: Database
    serving: Serving
    submitter: Submitter
    follower: Follower
    history: History

    def watch(self, run_ids: Sequence[str], on_event: OnEvent) -> bool:
        """Call `on_event` for every event of the runs, one run after the other; returns when all have ended.

        Ctrl-C cancels the runs, shows what still comes of them, and returns False.
        """
        last_seq: dict[str, int] = {}

        def note(event: Event) -> None:
            last_seq[event.run_id] = event.seq
            on_event(event)

        try:
            asyncio.run(self._follow(run_ids, note, last_seq))
        except KeyboardInterrupt:
            for run_id in run_ids:
                self.submitter.cancel(run_id)
            with suppress(TimeoutError, KeyboardInterrupt):
                asyncio.run(asyncio.wait_for(self._follow(run_ids, note, last_seq), _CANCEL_WAIT_S))
            return False
        return True

    async def _follow(self, run_ids: Sequence[str], note: OnEvent, last_seq: dict[str, int]) -> None:
        for run_id in run_ids:
            async for event in self.follower.follow(run_id, after=last_seq.get(run_id, -1)):
                note(event)


@contextmanager
def open_stack(settings: AppSettings) -> Iterator[Stack]:
    """The clients, closed at the end. Nothing is connected before it is used."""
    database = Database(settings.database_url, pool_size=4)
    serving = Serving(settings.redis_url)
    submitter = Submitter(database, settings.redis_url, serving, settings)
    try:
        yield Stack(database, serving, submitter, Follower(database, settings.redis_url), History(database))
    finally:
        submitter.close()
        serving.close()
        database.close()
