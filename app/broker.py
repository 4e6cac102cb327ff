"""Connections to Redis or Valkey that answer or fail quickly: one place for time-outs and for the error's words."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import redis
import redis.asyncio
from celery import Celery
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ConstantBackoff, NoBackoff
from redis.retry import Retry

from models.errors import BrokerUnavailableError

TIMEOUT_S: Final = 0.8  # two tries stay under the two seconds in which a person gets an answer
BLOCK_MS: Final = 1000
_FOLLOW_TIMEOUT_S: Final = 5.0  # longer than a blocking read, or the read would look like a dead server


def connect(url: str) -> redis.Redis:
    """A pooled client for short commands: two tries, each bounded."""
    return redis.Redis.from_url(
        url,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=Retry(ConstantBackoff(0.05), 1),
        health_check_interval=15,
        protocol=2,
    )


def producer(redis_url: str) -> Celery:
    """A Celery application that only sends: no task is registered, no result is kept."""
    app = Celery("decodelab.submit", broker=redis_url, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        broker_connection_timeout=TIMEOUT_S,
        broker_transport_options={"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S},
    )
    return app


def connect_for_reading(url: str) -> redis.asyncio.Redis:
    """A client with one connection of its own, for blocking reads of at most BLOCK_MS. The caller closes it."""
    return redis.asyncio.Redis.from_url(
        url,
        socket_timeout=_FOLLOW_TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=AsyncRetry(NoBackoff(), 0),
        single_connection_client=True,
        protocol=2,  # one shape of answer, whatever the client's default
    )


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn the client's errors into BrokerUnavailableError, without the password that a URL may hold."""
    try:
        yield
    except redis.RedisError as exc:
        raise unavailable(url, exc) from exc


def unavailable(url: str, exc: Exception) -> BrokerUnavailableError:
    return BrokerUnavailableError(
        f"Redis at {place(url)} does not answer ({type(exc).__name__}). Start the stack with `make up`, or check "
        "DECODELAB_REDIS_URL; then try again."
    )


def place(url: str) -> str:
    """`host:port` of a Redis URL: safe to show."""
    parts = urlsplit(url)
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


def leave_if_cancelled() -> None:
    """Raise CancelledError for a reader that was cancelled.

    The Redis client's own zero time-outs can swallow a cancellation that arrives just before one of them begins; the
    reader would then go on for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
