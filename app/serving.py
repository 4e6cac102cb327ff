"""Who is alive and what they serve, and the served checkpoints' tokenizers and chat templates: read from Redis, nothing
kept there."""

import gzip
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar, cast

from tokenizers import Tokenizer

from app.broker import connect, translated
from app.chat_preview import ChatPreview, chat_preview
from models.chat import Chat
from models.chat_template import TemplateSource
from models.errors import NoWorkerError, UnknownCheckpointError
from models.names import WORKERS_KEY, chat_template_key, tokenizer_key, worker_key
from models.presence import CheckpointInfo, WorkerPresence

_MAX_KEPT: Final = 8
_Value = TypeVar("_Value")

logger = logging.getLogger(__name__)


class Serving:
    """The live workers, as they are at the moment of each call."""

    def __init__(self, redis_url: str) -> None:
        self._url = redis_url
        self._redis = connect(redis_url)
        self._tokenizers: _Recent[Tokenizer] = _Recent()
        self._templates: _Recent[TemplateSource] = _Recent()

    def workers(self) -> list[WorkerPresence]:
        """Every live worker, by checkpoint and id. Raises BrokerUnavailableError."""
        with translated(self._url):
            ids = [value.decode() for value in cast("list[bytes]", self._redis.zrange(WORKERS_KEY, 0, -1))]
            # The key with a TTL is the proof of life; the sorted set may still name a worker that was killed.
            found = cast("list[bytes | None]", self._redis.mget([worker_key(i) for i in ids])) if ids else []
        live = [worker for value in found if value is not None and (worker := _decode(value))]
        return sorted(live, key=lambda worker: (worker.checkpoint.name, worker.worker_id))

    def checkpoints(self) -> list[CheckpointInfo]:
        """What live workers serve, one entry a name, by name. Raises BrokerUnavailableError."""
        return list({worker.checkpoint.name: worker.checkpoint for worker in self.workers()}.values())

    def info(self, name: str) -> CheckpointInfo:
        """The served checkpoint of this name.

        Raises UnknownCheckpointError naming what is served, NoWorkerError where nothing is, BrokerUnavailableError.
        """
        served = {info.name: info for info in self.checkpoints()}
        if name in served:
            return served[name]
        if not served:
            raise NoWorkerError(no_worker_text(name))
        raise UnknownCheckpointError(
            f"No checkpoint {name!r} is served; served are {', '.join(sorted(served))}. Choose one of them, or start a "
            "worker for it with `decodelab worker`."
        )

    def tokenizer(self, info: CheckpointInfo, *, parse_special: bool) -> Tokenizer | None:
        """The checkpoint's own tokenizer as its worker published it; None where there is none.

        With `parse_special` a special token's spelling in a text becomes that token, without it ordinary text.
        """
        if not info.tokenizer_digest:
            return None
        return self._tokenizers.get(
            (info.tokenizer_digest, parse_special),
            lambda: self._load_tokenizer(info.tokenizer_digest, parse_special=parse_special),
        )

    def chat_template(self, info: CheckpointInfo) -> TemplateSource | None:
        """The checkpoint's chat template as its worker published it; None where there is none, or one that is not
        understood here."""
        digest = info.chat_template_digest
        return self._templates.get(digest, lambda: self._load_template(digest)) if digest else None

    def count_tokens(self, name: str, prompt: str, *, parse_special: bool = False) -> int | None:
        """Tokens that `prompt` becomes, BOS included where the tokenizer adds one; None where that is not known.

        Raises what `info` raises.
        """
        info = self.info(name)
        tokenizer = self.tokenizer(info, parse_special=parse_special)
        return None if tokenizer is None else num_prompt_tokens(tokenizer, prompt, info)

    def preview_chat(self, name: str, chat: Chat) -> ChatPreview | None:
        """`chat` as the template of the checkpoint `name` sends it; None where that is not known here.

        Raises what `info` raises, and ChatError.
        """
        info = self.info(name)
        return chat_preview(chat, info, self.chat_template(info), self.tokenizer(info, parse_special=True))

    def close(self) -> None:
        self._redis.close()

    def _load_tokenizer(self, digest: str, *, parse_special: bool) -> Tokenizer | None:
        published = self._published(tokenizer_key(digest))
        if published is None:
            return None
        tokenizer = Tokenizer.from_str(published.decode("utf-8"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = not parse_special
        return tokenizer

    def _load_template(self, digest: str) -> TemplateSource | None:
        published = self._published(chat_template_key(digest))
        try:
            return None if published is None else TemplateSource.decode(published)
        except ValueError as exc:
            logger.warning("a worker's chat template cannot be read: %s", exc)
            return None

    def _published(self, key: str) -> bytes | None:
        with translated(self._url):
            packed = cast("bytes | None", self._redis.get(key))
        return None if packed is None else gzip.decompress(packed)


class _Recent(Generic[_Value]):
    """The values that were last asked for. May be used by several threads."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, _Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, load: Callable[[], _Value | None]) -> _Value | None:
        """The kept value, or what `load` gives, which is kept unless it is None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        loaded = load()
        if loaded is not None:
            with self._lock:
                self._values[key] = loaded
                while len(self._values) > _MAX_KEPT:
                    self._values.popitem(last=False)
        return loaded


def num_prompt_tokens(tokenizer: Any, prompt: str, info: CheckpointInfo) -> int:
    """Tokens of a raw prompt, with whatever the tokenizer puts around it: BOS, but for a text that begins with it."""
    ids = tokenizer.encode(prompt, add_special_tokens=True).ids
    is_doubled = info.adds_bos and ids[:2] == [info.bos_token_id] * 2
    return len(ids) - is_doubled


def no_worker_text(name: str | None) -> str:
    what = f"No live worker serves {name!r}" if name else "No worker is alive"
    return f"{what}. Start the whole stack with `make up`, or one worker with `decodelab worker`; then try again."


def _decode(data: bytes) -> WorkerPresence | None:
    try:
        return WorkerPresence.decode(data)
    except ValueError as exc:
        logger.warning("a worker's presence cannot be read: %s", exc)
        return None
