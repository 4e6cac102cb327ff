"""Ask a worker about a run that has ended, and wait for the answer.

The question goes to the queue of the run's checkpoint. While somebody waits, a key in Redis says so, and a worker that
finds it gone stops computing. A worker that has taken the question says so in the same way: one that dies is noticed
within seconds, and no answer is waited for that cannot come.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import redis.asyncio
from kombu.exceptions import OperationalError as QueueError
from redis.exceptions import RedisError
from sqlalchemy import select

from app.broker import connect_for_reading, leave_if_cancelled, producer, unavailable
from app.ids import check_id, not_found
from app.rows import new_id
from app.serving import Serving, no_worker_text
from models.db.runs import Run
from models.db.session import Database
from models.errors import (
    DecodeLabError,
    LimitError,
    NoWorkerError,
    RefusedError,
    UnavailableError,
    UnknownCheckpointError,
)
from models.events import Status
from models.examination import Asked, CacheCheck, Coverage, Influence, Question, WhatIf, decode
from models.names import EXAMINATION_TTL_S, EXAMINE_TASK, answer_key, queue_for, taken_key, wanted_key
from models.sampling import Settings

MAX_OPEN: Final = 32
TAKE_WITHIN_S: Final = 60.0
ANSWER_WITHIN_S: Final = 300.0
_LOOK_EVERY_S: Final = 1
_Answer = TypeVar("_Answer", Influence, WhatIf, Coverage, CacheCheck)


class Examiner:
    """The one door through which questions about saved runs go."""

    def __init__(
        self,
        database: Database,
        redis_url: str,
        serving: Serving,
        *,
        take_within_s: float = TAKE_WITHIN_S,
        answer_within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        self._database = database
        self._redis_url = redis_url
        self._serving = serving
        self._queue = producer(redis_url)
        self._take_within_s = take_within_s
        self._answer_within_s = answer_within_s
        self._num_open = 0

    async def influence(self, run_id: str) -> Influence:
        """What each active control did to the run. Raises DecodeLabError, as do the others."""
        return await self._ask(Asked(run_id, Question.INFLUENCE), Influence)

    async def what_if(self, run_id: str, settings: Settings) -> WhatIf:
        """The run's tokens under other settings."""
        return await self._ask(Asked(run_id, Question.WHAT_IF, settings.as_dict()), WhatIf)

    async def coverage(self, run_id: str) -> Coverage:
        """How far the truncating controls may be tightened before they forbid the run's tokens."""
        return await self._ask(Asked(run_id, Question.COVERAGE), Coverage)

    async def check_cache(self, run_id: str) -> CacheCheck:
        """The run's numbers with the cache against those without."""
        return await self._ask(Asked(run_id, Question.CACHE_CHECK), CacheCheck)

    def close(self) -> None:
        self._queue.close()

    async def _ask(self, asked: Asked, kind: type[_Answer]) -> _Answer:
        checkpoint = await asyncio.to_thread(self._checked, asked.run_id)
        if self._num_open >= MAX_OPEN:
            raise LimitError(f"{MAX_OPEN} questions about saved runs are open already; try again in a moment.")
        self._num_open += 1
        try:
            data = await self._answered(asked, checkpoint)
        finally:
            self._num_open -= 1
        try:
            return decode(data, kind)
        except ValueError as exc:
            raise DecodeLabError(
                f"The worker's answer cannot be read ({exc}); it is of another version. Update the older one."
            ) from exc

    def _checked(self, run_id: str) -> str:
        """The checkpoint of the run, for which a worker is there."""
        with self._database.read() as session:
            row = session.execute(
                select(Run.checkpoint, Run.status).where(Run.id == check_id(run_id, of="run"))
            ).first()
        if row is None:
            raise not_found(run_id, of="run")
        checkpoint, status = row
        if not Status(status).is_terminal:
            raise RefusedError("This run has not ended yet; ask again when it has.")
        try:
            self._serving.info(checkpoint)
        except UnknownCheckpointError:
            raise NoWorkerError(no_worker_text(checkpoint)) from None
        return str(checkpoint)

    async def _answered(self, asked: Asked, checkpoint: str) -> bytes:
        request_id = new_id()
        try:
            async with _wanted(connect_for_reading(self._redis_url), request_id) as client:
                await asyncio.to_thread(self._send, request_id, asked.as_dict(), checkpoint)
                return await self._wait(client, request_id)
        except (RedisError, QueueError, OSError) as exc:
            raise unavailable(self._redis_url, exc) from exc

    def _send(self, request_id: str, asked: dict[str, Any], checkpoint: str) -> None:
        self._queue.send_task(
            EXAMINE_TASK,
            args=[request_id, asked],
            queue=queue_for(checkpoint),
            ignore_result=True,
            retry=False,
        )

    async def _wait(self, client: "redis.asyncio.Redis", request_id: str) -> bytes:
        """The encoded answer. Raises UnavailableError for one that does not come."""
        asked_at = time.monotonic()
        is_taken = False
        while True:
            answer: Any = await client.blpop([answer_key(request_id)], timeout=_LOOK_EVERY_S)
            leave_if_cancelled()
            if answer is not None:
                return bytes(answer[1])
            waited_s = time.monotonic() - asked_at
            await client.set(wanted_key(request_id), 1, ex=EXAMINATION_TTL_S)
            was_taken, is_taken = is_taken, bool(await client.exists(taken_key(request_id)))
            if was_taken and not is_taken and not await client.exists(answer_key(request_id)):
                raise UnavailableError("The worker that looked back at this run was lost; try again.")
            if not is_taken and waited_s > self._take_within_s:
                raise UnavailableError(
                    f"No worker has had time for this within {self._take_within_s:g} s: all are busy with runs. "
                    "Try again when some have ended."
                )
            if waited_s > self._answer_within_s:
                raise UnavailableError(
                    f"There was no answer within {self._answer_within_s:g} s; try a shorter run, or when less goes on."
                )


@asynccontextmanager
async def _wanted(client: "redis.asyncio.Redis", request_id: str) -> AsyncIterator["redis.asyncio.Redis"]:
    """The client, while Redis says that the answer is wanted."""
    try:
        await client.set(wanted_key(request_id), 1, ex=EXAMINATION_TTL_S)
        yield client
    finally:
        with suppress(RedisError, OSError):  # it expires by itself
            await client.delete(wanted_key(request_id))
        await client.aclose()
