"""The running stack as a command sees it: clients for the database and Redis, and a run watched to its end."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from app.follow import Follower
from app.history import History
from app.serving import Serving, no_worker_text
from app.settings import AppSettings
from app.submit import Submitter
from models.db.session import Database
from models.errors import NoWorkerError, UnavailableError
from models.events import Event

_CANCEL_WAIT_S: Final = 10.0
_PATIENCE_S: Final = 60.0  # without any event; a dead worker is replaced, and its runs resumed, in half of it

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

        Ctrl-C cancels the runs, shows what still comes of them, and returns False. Raises UnavailableError, with the
        run's id, where nothing has come for a minute and what could bring it is away.
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
            while not await self._follow_for_a_while(run_id, note, last_seq.get(run_id, -1)):
                await asyncio.to_thread(self._check_alive, run_id)

    async def _follow_for_a_while(self, run_id: str, note: OnEvent, after: int) -> bool:
        """Follow to the end; False when nothing came for too long."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_PATIENCE_S) as limit, aclosing(self.follower.follow(run_id, after)) as events:
                async for event in events:
                    note(event)
                    limit.reschedule(loop.time() + _PATIENCE_S)
        except TimeoutError:
            return False
        return True

    def _check_alive(self, run_id: str) -> None:
        try:
            if not self.serving.workers():
                raise NoWorkerError(no_worker_text(None))
        except UnavailableError as exc:
            later = f"Run {run_id} is saved and goes on by itself then; see `decodelab runs show {run_id}`."
            raise type(exc)(f"{exc.message} {later}") from exc


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
