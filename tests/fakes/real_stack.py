"""The whole product in its own processes: Valkey, worker and web server. Only the network is scripted."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.fakes.services import REPOSITORY, Valkey, free_port, wait_until
from tests.fakes.worker import Plan, WorkerProcess


@dataclass
class RealStack:
    """Valkey, one worker and one web server on a folder; all of them can be killed and started again."""

    folder: Path
    database_url: str
    valkey: Valkey
    plan: Plan
    rows: int = 2
    port: int = field(default_factory=free_port)
    worker: WorkerProcess | None = None
    web: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.valkey.start()
        log = self.folder / "worker.log"
        self.worker = WorkerProcess(self.valkey, self.database_url, self.plan, rows=self.rows, log=log).start()
        self.start_web()

    def start_web(self) -> None:
        environment = {
            **os.environ,
            "DECODELAB_DATA": str(self.folder),
            "DECODELAB_REDIS_URL": self.valkey.url,
            "DECODELAB_DATABASE_URL": self.database_url,
            "DECODELAB_CHECKPOINTS": "scripted=/nowhere",
            "DECODELAB_PORT": str(self.port),
        }
        with (self.folder / "web.log").open("ab") as log:
            self.web = subprocess.Popen(
                [sys.executable, "-m", "app.cli", "web"],
                cwd=REPOSITORY,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_until(self._answers, what="the web server's answer")

    def kill(self) -> None:
        """Everything at once and without warning."""
        if self.web is not None:
            self.web.kill()
            self.web.wait()
        if self.worker is not None:
            self.worker.kill()
        self.valkey.kill()

    def _answers(self) -> bool:
        assert self.web is not None
        assert self.web.poll() is None, f"the web server left (log: {self.folder / 'web.log'})"
        try:
            return httpx.get(f"{self.url}/health").status_code == 200
        except httpx.HTTPError:
            return False
