"""The Celery worker inside this process: it takes messages until it is told to stop."""

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from celery import Celery, bootsteps
from celery.worker import WorkController
from celery.worker import state as celery_state
from celery.worker.consumer import Tasks

logger = logging.getLogger(__name__)

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Consumer:
    """Celery's threads pool without Celery's signal handlers.

    On this pool Celery's own cancel, time limit and soft shutdown do nothing. TERM and INT set `stopping`; whoever
    waits for that makes the tasks leave, and `run` returns when the last one has.
    """

    def __init__(self, app: Celery, *, concurrency: int, name: str, num_places: Callable[[], int]) -> None:
        """`concurrency`: threads. `num_places`: how many messages may be here at the moment, at most as many."""
        self.stopping = threading.Event()
        self._app = app
        self._concurrency = concurrency
        self._name = name
        app.steps["consumer"].add(_limit(num_places))

    def run(self) -> None:
        """Take messages, in the main thread, until TERM or INT."""
        for number in _SIGNALS:
            signal.signal(number, self._stop)
        worker = WorkController(
            app=self._app,
            hostname=self._name,
            pool="threads",
            concurrency=self._concurrency,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=not self._app.conf.worker_send_task_events,
        )
        worker.start()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping.set()
        celery_state.should_stop = 0  # what Celery's own handler sets: no new messages, exit status 0


def _limit(num_places: Callable[[], int]) -> type[bootsteps.StartStopStep]:
    """A part of Celery's consumer, made anew with each connection: no message is fetched without a place for it.

    In the way of Celery's own `worker_disable_prefetch`, whose number of places is fixed.
    """

    class Limit(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = (Tasks,)

        def start(self, c: Any) -> None:
            qos = c.task_consumer.channel.qos
            can_consume = qos.can_consume
            qos.can_consume = lambda: len(celery_state.reserved_requests) < num_places() and can_consume()

    return Limit
