"""One child process of the launcher: started so that it cannot outlive it, watched, restarted with growing pauses."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

_PR_SET_PDEATHSIG: Final = 1
_MAX_LOG_BYTES: Final = 10_000_000
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_STEADY_S: Final = 60.0  # a child that has lived this long starts again without a pause


@dataclass(slots=True)
class Child:
    """A named process that writes to a log file of its own."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    folder: Path | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _started_at: float = field(default=0.0, init=False)
    _pause_s: float = field(default=0.0, init=False)
    _restart_at: float | None = field(default=None, init=False)

    def start(self) -> None:
        """Start it. Raises OSError where the program or the log cannot be opened."""
        with open_log(self.log) as log:
            self._process = spawn(self.command, self.environment, output=log, folder=self.folder)
        self._started_at = time.monotonic()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def exit_status(self) -> int | None:
        """The exit status of a child that is dead, None while it lives."""
        return None if self._process is None else self._process.poll()

    def keep_alive(self, say: Callable[[str], None]) -> None:
        """Restart it if it died, after a pause that doubles while it keeps dying. To be called again and again."""
        if self.exit_status is None:
            return
        now = time.monotonic()
        if self._restart_at is None:
            is_steady = now - self._started_at > _STEADY_S
            self._pause_s = (
                _FIRST_PAUSE_S if is_steady else min(max(_FIRST_PAUSE_S, self._pause_s * 2), _LONGEST_PAUSE_S)
            )
            self._restart_at = now + self._pause_s
            how = describe(self.exit_status)
            say(f"{self.name} ended ({how}); restarting it in {self._pause_s:.0f} s, log: {self.log}")
        elif now >= self._restart_at:
            self._restart_at = None
            self.start()

    def ask_to_stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def stop(self, grace_s: float) -> None:
        """TERM, then KILL after `grace_s` seconds; returns when it is gone."""
        if self._process is not None:
            end(self._process, grace_s)


def spawn(
    command: Sequence[str], environment: Mapping[str, str], *, output: IO[bytes] | None, folder: Path | None = None
) -> subprocess.Popen[bytes]:
    """A process in a session of its own, which the kernel kills when this one dies (on Linux)."""
    parent = os.getpid()
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def die_with_parent() -> None:
        if libc is None:
            return
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died between the fork and the line above
            os.kill(os.getpid(), signal.SIGKILL)

    return subprocess.Popen(
        list(command),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        cwd=folder,
        start_new_session=True,  # Ctrl-C in the terminal reaches the launcher alone, which stops the others in order
        preexec_fn=die_with_parent,
    )


def end(process: subprocess.Popen[Any], grace_s: float) -> None:
    """TERM, then KILL after `grace_s` seconds; returns when it is gone."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def open_log(path: Path) -> IO[bytes]:
    """The log, appended to; a big one is put aside first."""
    if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
        path.replace(path.with_suffix(".old.log"))
    return path.open("ab")


def describe(exit_status: int | None) -> str:
    """An exit status in words."""
    if exit_status is None:
        return "running"
    if exit_status >= 0:
        return f"exit status {exit_status}"
    try:
        return f"killed by {signal.Signals(-exit_status).name}"
    except ValueError:
        return f"killed by signal {-exit_status}"


def last_lines(path: Path, count: int = 5) -> str:
    """The end of a log, for a message about what went wrong."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - 8192))
            return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-count:])
    except OSError:
        return ""
