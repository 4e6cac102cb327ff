"""Connections to Redis / Valkey with bounded waits; its errors become BrokerUnavailableError."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from models.errors import BrokerUnavailableError

CONNECT_TIMEOUT_S: Final = 2
ANSWER_TIMEOUT_S: Final = 5


def connect(redis_url: str) -> redis.Redis:
    """A client that opens its connections when it needs them.

    One immediate retry replaces a connection that the server has closed. Everything longer belongs to the caller, who
    knows what can wait: the library's own default repeats for half a minute.
    """
    return redis.Redis.from_url(
        redis_url,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=ANSWER_TIMEOUT_S,
        health_check_interval=10,
        retry=Retry(NoBackoff(), 1),
    )


@contextmanager
def translated() -> Iterator[None]:
    """Raise BrokerUnavailableError for whatever Redis could not do."""
    try:
        yield
    except redis.RedisError as exc:
        raise BrokerUnavailableError(
            f"Redis does not answer as it should ({_first_line(exc)}). Check that it runs, then try again."
        ) from exc


def _first_line(exc: Exception) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0]
