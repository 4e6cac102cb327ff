"""What a worker needs of the outside: Redis and the database, opened once and found to be there."""

from dataclasses import dataclass
from typing import Self

import redis

from models.db.session import Database
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
        """Raises BrokerUnavailableError or DatabaseUnavailableError, also for a database without tables."""
        client = connect(settings.redis_url)
        with translated():
            client.ping()
        # Each running task, and each loop beside them, may need a connection at the same moment.
        database = Database(settings.database_url, pool_size=settings.rows + 5)
        check_tables(database)
        return cls(database, client)
