"""`decodelab up` as its own processes over one data folder, and the other commands on it."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.fakes.services import free_port, wait_until

REPOSITORY = Path(__file__).parents[2]
START_S = 120


class LaunchedStack:
    """One data folder, its launcher and the commands on it."""

    def __init__(self, data: Path, checkpoint: Path) -> None:
        self.data = data
        self.port = free_port()
        self._log = data / "up.log"
        ours = {"DATA": data, "PORT": self.port, "CHECKPOINTS": f"tiny={checkpoint}", "THREADS": 1, "DTYPE": "float32"}
        others = {name: value for name, value in os.environ.items() if not name.startswith("DECODELAB_")}
        self.environment = {**others, **{f"DECODELAB_{name}": str(value) for name, value in ours.items()}}
        self._launcher: subprocess.Popen[bytes] | None = None

    def launch(self, *, wait_for: str = "is ready:") -> None:
        with self._log.open("wb") as log:
            self._launcher = self.start("up", stdout=log, stderr=subprocess.STDOUT)
        wait_until(
            lambda: wait_for in self.said or self.has_left, timeout_s=START_S, what=f"{wait_for!r} in {self._log}"
        )
        assert not self.has_left, self.said

    @property
    def pid(self) -> int:
        assert self._launcher is not None
        return self._launcher.pid

    @property
    def said(self) -> str:
        return self._log.read_text()

    @property
    def has_left(self) -> bool:
        return self._launcher is not None and self._launcher.poll() is not None

    @property
    def children(self) -> dict[str, psutil.Process]:
        """The launcher's children by what they are."""
        names = {"valkey-server": "valkey", "-m workers": "worker", "-m app.cli web": "web"}
        found = {}
        for child in psutil.Process(self.pid).children():
            with suppress(psutil.Error):  # it may die while we look
                line = " ".join(child.cmdline())
                found.update({name: child for words, name in names.items() if words in line})
        return found

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5) as answer:
                return bool(json.loads(answer.read())["num_workers"])
        except OSError:
            return False

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "app.cli", *arguments]
        return subprocess.Popen(command, cwd=REPOSITORY, env=self.environment, **options)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=120)
        return process.returncode, out.decode(), err.decode()

    def json(self, *arguments: str) -> Any:
        status, out, err = self(*arguments, "--json")
        assert status == 0, out + err
        return json.loads(out)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._launcher is not None
        self._launcher.send_signal(number)
        return self._launcher.wait(30)

    def close(self) -> None:
        if self._launcher is not None and not self.has_left:
            self._launcher.kill()
            self._launcher.wait()
