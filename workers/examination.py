"""Questions about runs that have ended: read the run, compute between the steps of those that stream, answer.

Nothing is written to the database and nothing survives the worker: who asks sees within seconds that a worker has gone,
and asks again. A question that nobody waits for any more is dropped, and one that comes twice is taken once.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, assert_never

import redis

from models.errors import DecodeLabError, LimitError, UnavailableError
from models.examination import Answer, Asked, Question, encode
from models.names import ANSWER_TTL_S, EXAMINATION_TTL_S, answer_key, taken_key, wanted_key
from workers.broker import translated
from workers.engine.cache_check import MAX_POSITIONS, cache_check_pieces
from workers.engine.checkpoint import Checkpoint
from workers.engine.coverage import coverage_pieces
from workers.engine.influence import influence_pieces
from workers.engine.replay import Pieces
from workers.engine.scheduler import CHUNK_POSITIONS
from workers.engine.what_if import what_if_pieces
from workers.finished import FinishedRun, FinishedRuns
from workers.host import EngineHost
from workers.seats import Seats

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.5
UNCACHED_POSITIONS: Final = 2048
"""Longest pass without a cache, which cannot be cut into pieces, while no run is there; beside runs it is a chunk."""


class Desk:
    """Where questions lie: who still waits, who has taken which, and the answers. Keys in Redis, seats in this
    process."""

    def __init__(self, client: redis.Redis, worker_id: str, *, num_seats: int) -> None:
        """At most `num_seats` questions are worked on at once."""
        self._client = client
        self._worker_id = worker_id
        self.seats = Seats(num_seats)

    def take(self, request_id: str) -> bool:
        """Whether the question is wanted and this worker's now. Raises BrokerUnavailableError."""
        with translated():
            if not self._client.exists(wanted_key(request_id)) or self._client.exists(answer_key(request_id)):
                return False
            return bool(self._client.set(taken_key(request_id), self._worker_id, nx=True, ex=EXAMINATION_TTL_S))

    def keep(self, request_id: str) -> bool:
        """Say that it is still worked on; whether it is still wanted. Raises BrokerUnavailableError."""
        with translated():
            self._client.expire(taken_key(request_id), EXAMINATION_TTL_S)
            return bool(self._client.exists(wanted_key(request_id)))

    def put(self, request_id: str, answer: Answer | DecodeLabError) -> None:
        """Raises BrokerUnavailableError."""
        with translated():
            together = self._client.pipeline()
            together.rpush(answer_key(request_id), encode(answer))
            together.expire(answer_key(request_id), ANSWER_TTL_S)
            together.delete(taken_key(request_id))
            together.execute()

    def drop(self, request_id: str) -> None:
        """Raises BrokerUnavailableError."""
        with translated():
            self._client.delete(taken_key(request_id))

    def seated(self, work: Callable[[], Answer | None]) -> Answer | None:
        """What `work` gives, on one of the seats. Raises LimitError where all are taken."""
        if not self.seats.take(1, within_s=0):
            raise LimitError(
                f"The worker looks back at {self.seats.number} other runs already; try again when they are through."
            )
        try:
            return work()
        finally:
            self.seats.give_back(1)


class Examination:
    """Every question that this worker answers. All methods may be called from any thread."""

    def __init__(self, checkpoint: Checkpoint, runs: FinishedRuns, host: EngineHost, desk: Desk) -> None:
        self._checkpoint = checkpoint
        self._runs = runs
        self._host = host
        self._desk = desk
        self._is_stopping = threading.Event()

    def answer(self, request_id: str, asked: dict[str, Any]) -> None:
        """Answer one question, with an error where something stands in its way. Returns at once for one that is
        answered elsewhere or not wanted any more."""
        try:
            if not self._desk.take(request_id):
                return
            answer = self._told(request_id, asked)
            if answer is None:
                self._desk.drop(request_id)
            else:
                self._desk.put(request_id, answer)
        except UnavailableError as exc:
            logger.warning("question %s is left without an answer: %s", request_id, exc.message)

    def stop(self) -> None:
        """Let those who wait know that this worker leaves."""
        self._is_stopping.set()

    def _told(self, request_id: str, asked: dict[str, Any]) -> Answer | DecodeLabError | None:
        try:
            return self._desk.seated(lambda: self._computed(request_id, Asked.parse(asked)))
        except DecodeLabError as exc:
            return exc
        except Exception:
            logger.exception("question %s failed: %r", request_id, asked)
            return DecodeLabError(f"A fault of the worker ended this; its log says more under {request_id}.")

    def _computed(self, request_id: str, asked: Asked) -> Answer | None:
        """None where nobody waits any more."""
        run = self._runs.read(asked.run_id, self._checkpoint.info)
        computing: Future[Any] = self._host.compute(self._pieces(asked, run))
        try:
            while True:
                try:
                    answer: Answer = computing.result(LOOK_EVERY_S)
                    return answer
                except TimeoutError:
                    if self._is_stopping.is_set():
                        raise UnavailableError("The worker is stopping; try again, another one may be there.") from None
                    if not self._desk.keep(request_id):
                        return None
        finally:
            computing.cancel()

    def _pieces(self, asked: Asked, run: FinishedRun) -> Pieces[Any]:
        settings = asked.settings_or(run.settings)
        known = (self._checkpoint, run.prompt_ids, run.output_ids, settings)
        num_given = len(run.opening)
        match asked.question:
            case Question.INFLUENCE:
                return influence_pieces(*known, num_given=num_given)
            case Question.WHAT_IF:
                return what_if_pieces(*known, opening=run.opening)
            case Question.COVERAGE:
                return coverage_pieces(*known)
            case Question.CACHE_CHECK:
                num_checked = self._num_checked(len(run.prompt_ids))
                return cache_check_pieces(*known, num_given=num_given, max_positions=num_checked)
            case _:
                assert_never(asked.question)

    def _num_checked(self, num_prompt: int) -> int:
        """Output positions that one pass without a cache may go over, after the prompt."""
        is_idle = self._host.num_active == 0
        longest = UNCACHED_POSITIONS if is_idle else CHUNK_POSITIONS
        if num_prompt > longest:
            advice = "take a run with a shorter prompt" if is_idle else "try again when no run is going on"
            raise LimitError(
                f"The pass without a cache has to be whole, over at most {longest:,} tokens now, and this prompt has "
                f"{num_prompt:,}; {advice}."
            )
        return min(MAX_POSITIONS, longest - num_prompt + 1)
