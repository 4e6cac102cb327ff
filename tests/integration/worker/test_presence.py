"""What a worker says of itself in Redis, and how it disappears."""

import gzip
import json
import os
import signal
import subprocess
import sys

import pytest
from tokenizers import Tokenizer

from app.chat_rendering import rendered
from app.serving import Serving
from models.chat import Chat
from models.names import PRESENCE_TTL_S, WORKERS_KEY, chat_template_key, tokenizer_key, worker_key
from tests.fakes import tokenizers
from tests.fakes.scripted import Script, scripted_checkpoint
from tests.fakes.services import REPOSITORY, wait_until
from tests.fakes.stack import GREEDY, Stack
from tests.fakes.worker import Plan, scripted_as
from tests.fakes.worker_side import StartWorker
from workers.engine.checkpoint import Checkpoint
from workers.health import is_alive
from workers.identity import new_presence
from workers.presence import Presence, published_parts
from workers.settings import WorkerSettings


def test_a_worker_says_what_it_serves_and_leaves_when_told(lite_stack: Stack, start_worker: StartWorker) -> None:
    worker = start_worker(lite_stack, Plan(step_s=0.02), rows=2)
    presence = worker.presence
    assert presence is not None
    assert (presence.num_rows, presence.num_running, presence.checkpoint.name) == (2, 0, "scripted")
    assert {"torch", "transformers", "python", "decodelab"} <= set(presence.versions)
    with lite_stack.valkey.client() as client:
        assert 0 < client.ttl(worker_key(presence.worker_id)) <= PRESENCE_TTL_S
        score = client.zscore(WORKERS_KEY, presence.worker_id)
        assert score is not None
        assert 0 < score - client.time()[0] <= PRESENCE_TTL_S
        tokenizer = gzip.decompress(client.get(tokenizer_key(presence.checkpoint.tokenizer_digest)) or b"")
        assert client.ttl(tokenizer_key(presence.checkpoint.tokenizer_digest)) > 0
        assert Tokenizer.from_str(json.dumps(json.loads(tokenizer))).encode(" quick").ids
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert client.zscore(WORKERS_KEY, presence.worker_id) is None
        assert client.get(worker_key(presence.worker_id)) is None


@pytest.mark.parametrize("template", [None, {"other": "a", "tools": "b"}])
def test_a_worker_without_a_default_chat_template_publishes_none(lite_stack: Stack, template: object) -> None:
    checkpoint, serving = announced(lite_stack, template), Serving(lite_stack.valkey.url)
    assert checkpoint.info.chat_template_digest == ""
    assert checkpoint.info.has_chat_template is (template is not None)
    assert serving.chat_template(serving.info("tiny")) is None
    serving.close()


def test_the_web_process_renders_with_the_template_that_a_worker_publishes(lite_stack: Stack) -> None:
    """The default one of several."""
    template = "{{ eos_token }}{% for m in messages %}{{ m | tojson }}{% endfor %}é"
    checkpoint, serving = announced(lite_stack, {"default": template, "tools": "b"}), Serving(lite_stack.valkey.url)
    source = serving.chat_template(serving.info("tiny"))
    assert source is not None
    chat = Chat.said("日本")
    assert rendered(chat, source, name="tiny") == checkpoint.encode_chat(chat).text
    with lite_stack.valkey.client() as client:
        assert client.ttl(chat_template_key(source.digest)) > PRESENCE_TTL_S
    serving.close()


def announced(stack: Stack, template: object) -> Checkpoint:
    """A checkpoint with this chat template, whose worker has said that it serves it."""
    tokenizer = tokenizers.chatml()
    tokenizer.chat_template = template
    checkpoint = scripted_checkpoint(tokenizer, Script([0]), name="tiny")
    mine = new_presence("z", checkpoint.info, num_rows=1)
    with stack.valkey.client() as client:
        Presence(client, lambda: mine, published=published_parts(checkpoint), on_failure=pytest.fail).announce()
    return checkpoint


def test_the_health_check_knows_a_live_worker_from_none(lite_stack: Stack, start_worker: StartWorker) -> None:
    def check() -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "DECODELAB_REDIS_URL": lite_stack.valkey.url}
        command = [sys.executable, "-m", "workers.health"]
        return subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    worker = start_worker(lite_stack)
    assert check().returncode == 0
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    after = check()
    assert (after.returncode, after.stderr) == (1, "no worker on this host has announced itself in the last seconds\n")


@pytest.mark.parametrize(
    "record", [b"", b"no json", b"[]", b"{}", b'{"checkpoint": 7}', b'{"host": "h", "checkpoint": {}}']
)
def test_another_workers_unreadable_record_makes_nobody_ill(lite_stack: Stack, record: bytes) -> None:
    settings = WorkerSettings(redis_url=lite_stack.valkey.url)
    mine = new_presence("z", scripted_as("c", Plan()).info, num_rows=1)
    with lite_stack.valkey.client() as client:
        client.zadd(WORKERS_KEY, {"a": 1, mine.worker_id: 2})
        client.set(worker_key("a"), record)
        assert not is_alive(settings, mine.host)
        client.set(worker_key(mine.worker_id), mine.encode())
        assert is_alive(settings, mine.host)


def test_every_key_that_a_worker_leaves_has_a_time_to_live(lite_stack: Stack, start_worker: StartWorker) -> None:
    worker = start_worker(lite_stack)
    for _ in range(3):
        lite_stack.wait_ended(lite_stack.submit(settings=GREEDY.with_changes(max_tokens=3)))
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    with lite_stack.valkey.client() as client:
        wait_until(lambda: not client.llen("generate.scripted"))
        lasting = {key.decode() for key in client.scan_iter() if client.ttl(key) < 0}
    assert not {key for key in lasting if not key.startswith("_kombu.")}
