"""`python -m workers.health`: exit status 0 when a worker on this host says in Redis that it lives, else 1 and why.

The health check of the worker's container: each container is a host of its own.
"""

import socket
import sys
from typing import Any

from models.errors import DecodeLabError
from models.names import WORKERS_KEY, worker_key
from models.presence import WorkerPresence
from workers.broker import connect, translated
from workers.settings import WorkerSettings


def main() -> int:
    try:
        alive = is_alive(WorkerSettings.load(), socket.gethostname())
        reason = "" if alive else "no worker on this host has announced itself in the last seconds"
    except DecodeLabError as exc:
        reason = exc.message
    if reason:
        sys.stderr.write(f"{reason}\n")
    return 1 if reason else 0


def is_alive(settings: WorkerSettings, host: str) -> bool:
    """Raises BrokerUnavailableError when Redis does not answer."""
    client = connect(settings.redis_url)
    with translated():
        members: Any = client.zrange(WORKERS_KEY, 0, -1)
        found: Any = client.mget([worker_key(member.decode()) for member in members]) if members else []
    return any(_host(data) == host for data in found if data is not None)


def _host(data: bytes) -> str | None:
    """The host of a worker; None for a record that cannot be read, such as one of another version."""
    try:
        return WorkerPresence.decode(data).host
    except ValueError:
        return None


if __name__ == "__main__":
    sys.exit(main())
