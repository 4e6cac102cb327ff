"""`decodelab up`: the embedded stack on one machine, started in order, watched, and stopped in order.

    lock -> Valkey -> migrations -> web -> checkpoint -> worker -> address

One launcher owns a data folder. Its children cannot outlive it: the kernel kills them when it dies.
"""

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.broker import place
from app.child import Child, describe, end, last_lines, spawn
from app.folder import locked, make_folders
from app.migrate import PROJECT, UPGRADE
from app.serving import Serving
from app.settings import AppSettings
from app.valkey import answers, find_server, free_port, is_free, is_loopback, port_of, server_command
from models.environment import DEFAULT_REDIS_PORT
from models.errors import RefusedError, UnavailableError
from models.names import EXIT_CONFIGURATION

_POLL_S: Final = 0.2
_VALKEY_START_S: Final = 30.0
_WORKER_WAIT_S: Final = 60.0
_PAGE_WAIT_S: Final = 60.0
_DRAIN_S: Final = "4"  # the worker hands its runs over in time for the whole stop to take at most ten seconds
_STEP_GRACE_S: Final = 5.0
_GRACE_S: Final = {"web": 2.0, "worker": 6.0, "valkey": 2.0}


Say = Callable[[str], None]


class _Stopped(Exception):
    """A signal asked the launcher to stop."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the stack answers."""

    redis_url: str
    web_url: str
    web_port: int


def up(settings: AppSettings, say: Say) -> None:
    """Run the stack until a signal stops it.

    Raises RefusedError where another launcher owns the data folder, UnavailableError where a part cannot start.
    """
    settings.check_address()
    make_folders(settings.data)
    with locked(settings.data), _StopSignal() as stop, suppress(_Stopped):
        Launcher(settings, say, stop).run()
    say("Stopped.")


class Launcher:
    """The children of one stack."""

    def __init__(self, settings: AppSettings, say: Say, stop: "_StopSignal") -> None:
        self._settings = settings
        self._say = say
        self._stop = stop
        self._children: list[Child] = []
        self._addresses = _place(settings, say)
        self._environment = {
            **settings.environment(),
            "DECODELAB_REDIS_URL": self._addresses.redis_url,
            "DECODELAB_PORT": str(self._addresses.web_port),
        }
        self._environment.setdefault("DECODELAB_DRAIN_S", _DRAIN_S)

    def run(self) -> None:
        """Start, announce, watch; stop every child on the way out, whatever the reason."""
        try:
            self._start()
            self._announce()
            while True:
                self._watch()
        finally:
            self._stop_all()

    def _start(self) -> None:
        self._start_valkey()
        facts = {"pid": os.getpid(), "redis_url": self._addresses.redis_url, "web_url": self._addresses.web_url}
        _write_json(self._settings.stack_file, facts)
        self._step("migrations", list(UPGRADE), is_quiet=True)
        self._add("web", [sys.executable, "-m", "app.cli", "web"])  # it needs no checkpoint, and seconds to be ready
        self._step("checkpoint", [sys.executable, "-m", "workers.prepare"])
        self._add("worker", [sys.executable, "-m", "workers"])

    def _start_valkey(self) -> None:
        url = self._addresses.redis_url
        if self._settings.is_chosen("redis_url") and answers(url):
            return
        if not is_loopback(url):
            raise UnavailableError(f"Redis at {place(url)} does not answer; start it, or unset DECODELAB_REDIS_URL.")
        command = server_command(find_server(), self._settings.data / "valkey", port_of(url))
        child = self._add("valkey", command)
        deadline = time.monotonic() + _VALKEY_START_S
        while not answers(url):
            self._stop.check()
            if child.exit_status is not None or time.monotonic() > deadline:
                raise UnavailableError(f"Valkey did not start ({describe(child.exit_status)}): {last_lines(child.log)}")
            time.sleep(0.05)

    def _step(self, name: str, command: list[str], *, is_quiet: bool = False) -> None:
        """Something that runs to its end before the next begins. Raises UnavailableError with what it said."""
        log = self._settings.log_folder / f"{name}.log"
        with log.open("wb") if is_quiet else nullcontext() as output:
            process = spawn(command, self._environment, output=output, folder=PROJECT)
        while process.poll() is None:
            if self._stop.is_set:
                end(process, _STEP_GRACE_S)
            self._stop.check()
            time.sleep(0.02)
        if process.returncode != 0:
            said = f": {last_lines(log)}" if is_quiet else "; its message is above"
            raise UnavailableError(f"The step {name!r} failed ({describe(process.returncode)}){said}")

    def _add(self, name: str, command: list[str]) -> Child:
        child = Child(name, command, self._environment, self._settings.log_folder / f"{name}.log", folder=PROJECT)
        self._children.append(child)
        child.start()
        return child

    def _announce(self) -> None:
        """Print the address once the page answers, and a worker too unless that takes too long."""
        url = self._addresses.web_url
        if not self._wait(lambda: page_answers(url), _PAGE_WAIT_S):
            said = last_lines(self._settings.log_folder / "web.log")
            raise UnavailableError(f"The page did not answer at {url}: {said}")
        serving = Serving(self._addresses.redis_url)
        try:
            has_worker = self._wait(lambda: self._has_worker(serving), _WORKER_WAIT_S)
        finally:
            serving.close()
        if not has_worker:
            self._say(f"No worker answers yet; its log is {self._settings.log_folder / 'worker.log'}")
        self._say(f"Decode Lab is ready: {url}   (Ctrl-C stops it)")

    def _has_worker(self, serving: Serving) -> bool:
        """Whether a worker is alive. Raises RefusedError where the one that was started says it never can be."""
        for child in self._children:
            if child.name == "worker" and child.exit_status == EXIT_CONFIGURATION:
                raise RefusedError(last_lines(child.log, 1))
        return bool(serving.workers())

    def _wait(self, is_done: Callable[[], bool], limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            with suppress(UnavailableError):
                if is_done():
                    return True
            self._watch()
        return False

    def _watch(self) -> None:
        self._stop.check()
        for child in self._children:
            child.keep_alive(self._say)
        time.sleep(_POLL_S)

    def _stop_all(self) -> None:
        """The page first, so nothing new comes in; then the worker, which hands over; then what they need."""
        self._settings.stack_file.unlink(missing_ok=True)
        by_name = {child.name: child for child in self._children}
        for name in ("web", "worker"):
            if name in by_name:
                by_name[name].ask_to_stop()
        for name, grace_s in _GRACE_S.items():
            if name in by_name:
                by_name[name].stop(grace_s)


def page_answers(url: str) -> bool:
    """Whether a GET of `url` is answered with success."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _place(settings: AppSettings, say: Say) -> Addresses:
    """The addresses: the operator's where chosen, else the default ones or the next that are free."""
    redis_url = settings.redis_url
    if not settings.is_chosen("redis_url"):
        port = free_port(DEFAULT_REDIS_PORT)
        redis_url = f"redis://127.0.0.1:{port}/0"
    port = settings.port
    if not is_free(port, settings.host):
        if settings.is_chosen("port"):
            raise RefusedError(
                f"Port {port} on {settings.host} is taken by another program; set DECODELAB_PORT to a free one."
            )
        port = free_port(port, settings.host)
        say(f"Port {settings.port} is taken by another program; the page will be on port {port}.")
    return Addresses(redis_url, f"http://{_reachable(settings.host)}:{port}/", port)


def _reachable(host: str) -> str:
    """The host part of an address at which this machine reaches a server that listens on `host`."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _write_json(path: Path, values: Mapping[str, object]) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(values), encoding="utf-8")
    draft.replace(path)


class _StopSignal:
    """Ctrl-C, TERM and the closing of the terminal as a flag; a second Ctrl-C ends the launcher at once."""

    _SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.is_set = False
        self._before: list[tuple[signal.Signals, Any]] = []

    def __enter__(self) -> "_StopSignal":
        self._before = [(number, signal.signal(number, self._on_signal)) for number in self._SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def check(self) -> None:
        if self.is_set:
            raise _Stopped

    def _on_signal(self, *_: object) -> None:
        self.is_set = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
