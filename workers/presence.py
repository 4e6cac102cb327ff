"""Saying in Redis that this worker lives and what it serves, and listening there for cancel hints."""

import gzip
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

import redis

from models.errors import BrokerUnavailableError, UnavailableError
from models.names import (
    CANCEL_CHANNEL,
    PRESENCE_EVERY_S,
    PRESENCE_TTL_S,
    PUBLISHED_TTL_S,
    WORKERS_KEY,
    chat_template_key,
    tokenizer_key,
    worker_key,
)
from models.presence import WorkerPresence
from workers.broker import translated
from workers.engine.checkpoint import Checkpoint
from workers.periodic import Periodic

logger = logging.getLogger(__name__)

LISTEN_S: Final = 1.0  # shorter than the socket's timeout, so that silence is not an error

# KEYS: workers, own key. ARGV: worker id, presence, TTL. The expiry is in Redis seconds: hosts' clocks may differ.
_ANNOUNCE: Final = """
redis.call('ZADD', KEYS[1], redis.call('TIME')[1] + ARGV[3], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. redis.call('TIME')[1])
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
"""


class Presence:
    """Announces `current()` every few seconds under a TTL; a dead worker disappears by itself.

    What it `published`, by key, is there before the announcement that names it.
    """

    def __init__(
        self,
        client: redis.Redis,
        current: Callable[[], WorkerPresence],
        *,
        published: Mapping[str, bytes],
        on_failure: Callable[[str], None],
    ) -> None:
        self._client = client
        self._current = current
        self._published = {key: gzip.compress(value, mtime=0) for key, value in published.items()}
        self._loop = Periodic("presence", self.announce, every_s=PRESENCE_EVERY_S, on_failure=on_failure)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        """Disappear at once."""
        self._loop.stop()
        worker_id = self._current().worker_id
        try:
            with translated():
                self._client.zrem(WORKERS_KEY, worker_id)
                self._client.delete(worker_key(worker_id))
        except BrokerUnavailableError:
            logger.info("the worker's presence will expire by itself")

    def announce(self) -> None:
        """Raises BrokerUnavailableError."""
        presence = self._current()
        with translated():
            for key, packed in self._published.items():
                self._publish(key, packed)
            self._client.eval(
                _ANNOUNCE,
                2,
                WORKERS_KEY,
                worker_key(presence.worker_id),
                presence.worker_id,
                presence.encode(),
                PRESENCE_TTL_S,
            )

    def _publish(self, key: str, packed: bytes) -> None:
        if not self._client.expire(key, PUBLISHED_TTL_S):
            self._client.set(key, packed, ex=PUBLISHED_TTL_S)


def published_parts(checkpoint: Checkpoint) -> dict[str, bytes]:
    """What the web process needs of a checkpoint beside its facts, by key: the tokenizer, the chat template."""
    info, source = checkpoint.info, checkpoint.chat.source
    parts = {tokenizer_key(info.tokenizer_digest): checkpoint.tokenizer_json}
    if source is not None:
        parts[chat_template_key(info.chat_template_digest)] = source.encode()
    return parts


class CancelListener:
    """Calls `on_hint(run_id)` for every hint. One that is lost costs little: the row is looked at as well."""

    def __init__(
        self, client: redis.Redis, on_hint: Callable[[str], None], *, on_failure: Callable[[str], None]
    ) -> None:
        self._client = client
        self._on_hint = on_hint
        self._is_stopping = threading.Event()
        self._loop = Periodic("cancel hints", self._listen, every_s=LISTEN_S, on_failure=on_failure)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._is_stopping.set()
        self._loop.stop()

    def _listen(self) -> None:
        with translated(), redis.client.PubSub(self._client.connection_pool, ignore_subscribe_messages=True) as channel:
            channel.subscribe(CANCEL_CHANNEL)
            while not self._is_stopping.is_set():
                message = channel.get_message(timeout=LISTEN_S)
                if message is not None:
                    self._follow(message["data"])

    def _follow(self, hint: bytes) -> None:
        """A fault of one run, or a hint that names none, must not cost the others theirs."""
        try:
            self._on_hint(hint.decode())
        except UnavailableError:
            raise
        except Exception:
            logger.exception("a cancel hint could not be followed: %r", hint)
