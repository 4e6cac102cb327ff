"""Who is alive, and how many tokens a prompt has."""

import gzip

import pytest

from app.serving import Serving
from models.chat_template import TemplateSource
from models.errors import BrokerUnavailableError, NoWorkerError, UnknownCheckpointError
from models.names import WORKERS_KEY, chat_template_key, tokenizer_key, worker_key
from tests.fakes.services import Valkey
from tests.integration.app.by_hand import Worker


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """Nothing here asks the database."""
    return sqlite_url


def test_only_live_workers_count(serving: Serving, worker: Worker) -> None:
    assert serving.workers() == []
    worker.appear("b")
    worker.appear("a")
    assert [info.name for info in serving.checkpoints()] == ["a", "b"]
    worker.vanish("a")
    assert [info.name for info in serving.checkpoints()] == ["b"]
    assert serving.info("b").context_length == 16


def test_a_presence_that_cannot_be_read_hides_nobody(serving: Serving, worker: Worker) -> None:
    worker.appear()
    for broken in ("not json", "{}", '{"checkpoint": {"end_token_ids": []}}'):
        worker.redis.zadd(WORKERS_KEY, {"odd": 1e12})
        worker.redis.set(worker_key("odd"), broken)
        assert [w.worker_id for w in serving.workers()] == ["w-tiny"]


def test_names_that_are_not_served(serving: Serving, worker: Worker) -> None:
    with pytest.raises(NoWorkerError, match="'tiny'"):
        serving.info("tiny")
    worker.appear()
    with pytest.raises(UnknownCheckpointError, match="served are tiny"):
        serving.info("other")


def test_tokens_are_counted_with_the_published_tokenizer(serving: Serving, worker: Worker) -> None:
    info = worker.appear()
    assert serving.count_tokens("tiny", "two <s>") == 7
    assert serving.count_tokens("tiny", "two <s>", parse_special=True) == 5
    assert serving.count_tokens("tiny", "") == 0
    assert serving.count_tokens("tiny", "é😀") == 6
    worker.redis.delete(tokenizer_key(info.tokenizer_digest))
    assert serving.count_tokens("tiny", "two") == 3  # kept since it was read


def test_an_unpublished_tokenizer_is_not_known_yet(serving: Serving, worker: Worker) -> None:
    info = worker.appear(adds_bos=True)
    worker.redis.delete(tokenizer_key(info.tokenizer_digest))
    assert serving.count_tokens("tiny", "two") is None
    worker.appear(adds_bos=True)
    assert serving.count_tokens("tiny", "two") == 4
    assert serving.count_tokens("tiny", "<s>two", parse_special=True) == 4  # no second one
    assert serving.count_tokens("tiny", "<s><s>two", parse_special=True) == 5
    assert serving.count_tokens("tiny", "<s>two") == 7


def test_a_chat_template_is_read_where_it_is_published(serving: Serving, worker: Worker) -> None:
    """An older worker does not publish it, and what a newer one has may not be understood."""
    info = worker.appear(chat_template="{{ bos_token }}é")
    key = chat_template_key(info.chat_template_digest)
    packed = worker.redis.get(key) or b""
    worker.redis.set(key, gzip.compress(b'{"of": "tomorrow"}'))
    assert serving.chat_template(info) is None
    worker.redis.delete(key)
    assert serving.chat_template(info) is None
    worker.redis.set(key, packed)
    assert serving.chat_template(info) == TemplateSource("{{ bos_token }}é", {"bos_token": "<s>"})
    worker.redis.delete(key)
    assert serving.chat_template(info) is not None  # kept since it was read
    assert serving.chat_template(worker.appear(has_chat_template=True)) is None


def test_redis_away(serving: Serving, valkey: Valkey) -> None:
    valkey.kill()
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1"):
        serving.workers()
