"""A thread that does one thing every few seconds until it is told to stop."""

import logging
import threading
from collections.abc import Callable

from models.errors import UnavailableError

logger = logging.getLogger(__name__)


class Periodic:
    """Calls `action` every `every_s`, at once after `wake`.

    A part that does not answer is logged and tried again at the next turn; any other error goes to `on_failure`,
    because a worker that has silently lost one of its loops looks alive and is not.
    """

    def __init__(
        self, name: str, action: Callable[[], None], *, every_s: float, on_failure: Callable[[str], None]
    ) -> None:
        self._action = action
        self._every_s = every_s
        self._on_failure = on_failure
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5) -> None:
        self._is_stopping = True
        self._wake.set()
        self._thread.join(timeout_s)

    def _repeat(self) -> None:
        while not self._is_stopping:
            try:
                self._action()
            except UnavailableError as exc:
                logger.warning("%s: %s", self._thread.name, exc.message)
            except Exception:
                logger.exception("%s failed", self._thread.name)
                self._on_failure(f"the {self._thread.name} loop failed")
                return
            self._wake.wait(self._every_s)
