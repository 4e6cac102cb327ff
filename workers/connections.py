"""What a worker needs of the outside: Redis and the database, opened once and found to be there."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import redis

from models.db.session import Database
from models.errors import SettingError
from workers.broker import connect, translated
from workers.settings import WorkerSettings
from workers.store import check_tables


@dataclass(frozen=True, slots=True)
class Connections:
    """Shared by the threads of the process."""

    database: Database
    client: redis.Redis

    @classmethod
    def open(cls, settings: WorkerSettings) -> Self:
        """Raises SettingError, BrokerUnavailableError or DatabaseUnavailableError, also for one without tables."""
        check_stack(settings)
        client = connect(settings.redis_url)
        with translated():
            client.ping()
        # Each running task, and each loop beside them, may need a connection at the same moment.
        database = Database(settings.database_url, pool_size=settings.rows + 5)
        check_tables(database)
        return cls(database, client)


def check_stack(settings: WorkerSettings) -> None:
    """Raise SettingError where a stack runs on the data folder and nobody has said where its Redis is.

    Its port is chosen when it starts, and at the default one there may be another stack's.
    """
    redis_url = _running_redis_url(settings.data / "run" / "stack.json")
    if redis_url and redis_url != settings.redis_url and "redis_url" not in settings.model_fields_set:
        raise SettingError(
            f"The stack on {settings.data.resolve()} has its Redis at {redis_url}. Start this worker with `decodelab "
            f"worker`, which knows that, or set DECODELAB_REDIS_URL={redis_url}.",
            field="DECODELAB_REDIS_URL",
        )


def _running_redis_url(stack_file: Path) -> str | None:
    """What the launcher wrote there, while it lives."""
    try:
        stack = json.loads(stack_file.read_text(encoding="utf-8"))
        pid, redis_url = int(stack["pid"]), str(stack["redis_url"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return redis_url if _lives(pid) else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # as another user
    return pid > 0
