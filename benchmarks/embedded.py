"""The embedded stack as a benchmark's subject: `decodelab up` on a data folder of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.settings import AppSettings
from app.stack import Stack, open_stack
from models.environment import DEFAULT_CHECKPOINTS
from models.errors import UnavailableError
from models.presence import WorkerPresence
from workers.engine.catalog import Catalog

TWIN = "twin"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Running:
    """A started stack: its clients, its folder and what its processes were told."""

    stack: Stack
    settings: AppSettings
    environment: dict[str, str]

    @property
    def worker(self) -> WorkerPresence:
        """The worker of the stack itself."""
        return next(w for w in self.stack.serving.workers() if w.checkpoint.name != TWIN)


@contextlib.contextmanager
def embedded_stack(data: Path, *, threads: int) -> Iterator[Running]:
    """`decodelab up` on an empty data folder that borrows the prepared checkpoints, stopped at the end.

    The list also has the default checkpoint under a second name, TWIN, which no worker of the stack serves.
    """
    with tempfile.TemporaryDirectory(prefix="decodelab-bench-") as folder:
        checkpoints = (data / "checkpoints").resolve()
        (Path(folder) / "checkpoints").symlink_to(checkpoints)
        default = Catalog.parse(DEFAULT_CHECKPOINTS, Path(folder)).entry()
        environment = {
            **os.environ,  # noqa: TID251 -- a child's environment
            "DECODELAB_DATA": folder,
            "DECODELAB_THREADS": str(threads),
            "DECODELAB_DTYPE": "float32",
            "DECODELAB_CHECKPOINTS": f"{DEFAULT_CHECKPOINTS};{TWIN}={checkpoints / default.name}",
        }
        log = Path(folder) / "up.log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "app.cli", "up"]
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_for(process, log)
            settings = AppSettings(data=Path(folder))
            with open_stack(settings) as stack:
                yield Running(stack, settings, environment)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_TIMEOUT_S)


def wait_for(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return when the stack says that it is ready."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while "Decode Lab is ready" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise UnavailableError(f"The stack did not start: {log.read_text()[-2000:]}")
        time.sleep(0.1)
