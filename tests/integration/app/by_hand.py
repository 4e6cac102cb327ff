"""A worker's part of the contract, done by hand: presence, tokenizer, stream entries and rows."""

import base64
import gzip
import hashlib
import time
from collections.abc import Sequence

import orjson
import redis
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from models.chat_template import TemplateSource
from models.db.ledger import token_row
from models.db.runs import Run, Token
from models.db.session import Database
from models.events import Ended, Event, TokenPicked, to_json
from models.names import WORKERS_KEY, chat_template_key, stream_key, tokenizer_key, worker_key
from models.presence import CheckpointInfo, WorkerPresence

CONTEXT = 16


def tokenizer_json(*, adds_bos: bool = False) -> str:
    """Bytes as tokens, so a prompt of n ASCII characters has n tokens; `<s>` and `</s>` are special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<s>", "</s>")])
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    return str(tokenizer.to_str())


class Worker:
    """Tells Redis and the database what a worker would, when the test says so."""

    def __init__(self, database: Database, redis_url: str) -> None:
        self._database = database
        self.redis = redis.Redis.from_url(redis_url)

    def appear(
        self,
        name: str = "tiny",
        *,
        adds_bos: bool = False,
        has_tokenizer: bool = True,
        has_chat_template: bool = False,
        chat_template: str | None = None,
    ) -> CheckpointInfo:
        """Become alive, serving the checkpoint `name`; with `has_chat_template` alone as an older worker does, which
        does not publish it."""
        content = tokenizer_json(adds_bos=adds_bos)
        digest = hashlib.sha256(content.encode()).hexdigest() if has_tokenizer else ""
        source = None if chat_template is None else TemplateSource(chat_template, {"bos_token": "<s>"})
        info = CheckpointInfo(
            name=name, source="folder", revision="", weights_digest="0" * 64, architecture="LlamaForCausalLM",
            num_parameters=1, vocab_size=258, context_length=CONTEXT, end_token_ids=(257,), bos_token_id=256,
            adds_bos=adds_bos, has_chat_template=has_chat_template or source is not None, num_layers=2,
            num_kv_heads=2, head_size=8, device="cpu", dtype="float32", tokenizer_digest=digest,
            chat_template_digest="" if source is None else source.digest,
        )  # fmt: skip
        presence = WorkerPresence(
            worker_id=f"w-{name}", host="here", pid=1, started_at="2026-01-01T00:00:00+00:00", num_rows=1,
            num_running=0, checkpoint=info, versions={},
        )  # fmt: skip
        if has_tokenizer:
            self.redis.set(tokenizer_key(digest), gzip.compress(content.encode()))
        if source is not None:
            self.redis.set(chat_template_key(source.digest), gzip.compress(source.encode()))
        self.redis.set(worker_key(presence.worker_id), presence.encode(), ex=15)
        self.redis.zadd(WORKERS_KEY, {presence.worker_id: time.time() + 15})
        return info

    def vanish(self, name: str = "tiny") -> None:
        """Die without a word: the key with the TTL goes, the set still has the name."""
        self.redis.delete(worker_key(f"w-{name}"))

    def send(self, events: Sequence[Event]) -> None:
        """Put events on their streams."""
        for event in events:
            self.redis.xadd(stream_key(event.run_id), {"event": event.encode()}, id=f"{event.seq + 1}-0")

    def save(self, run_id: str, events: Sequence[Event]) -> None:
        """Write events to the database: token rows and milestones, and the end's columns with `Ended`."""
        with self._database.write() as session:
            run = session.get_one(Run, run_id)
            if run.status == "queued":
                run.status = "running"
                run.attempt = 1
            run.milestones = run.milestones + [
                orjson.loads(e.encode()) for e in events if not isinstance(e.payload, TokenPicked)
            ]
            session.add_all(Token(**token_row(e)) for e in events if isinstance(e.payload, TokenPicked))
            for event in events:
                if isinstance(event.payload, Ended):
                    _end(run, event.payload)
            session.flush()
            rows = session.query(Token).filter(Token.run_id == run_id).order_by(Token.position)
            run.text = "".join(row.text for row in rows)

    def queued_ids(self, name: str = "tiny") -> list[str]:
        """The run ids that wait on the checkpoint's queue, the oldest first."""
        messages = [orjson.loads(m) for m in self.redis.lrange(f"generate.{name}", 0, -1)]
        return [orjson.loads(base64.b64decode(m["body"]))[0][0] for m in reversed(messages)]

    def close(self) -> None:
        self.redis.close()


def _end(run: Run, ended: Ended) -> None:
    run.status = ended.status.value
    run.stop_reason = ended.stop.reason.value
    run.stop = to_json(ended.stop)
    run.num_tokens = ended.num_tokens
