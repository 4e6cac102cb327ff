"""`python -m workers` over a checkpoint from a folder: the real loader, network, engine and process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from models.events import Ended, TokenPicked
from models.names import WORKERS_KEY
from models.sampling import Settings
from tests.fakes import checkpoints
from tests.fakes.services import REPOSITORY, wait_until
from tests.fakes.stack import Stack, token_ids
from workers.engine.catalog import Catalog
from workers.engine.checkpoint import load_checkpoint
from workers.engine.engine import Engine, Request

PROMPT = "the quick brown"
SETTINGS = Settings(temperature=1.3, top_p=0.9, repetition_penalty=1.2, max_tokens=40, seed=11, ignore_eos=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkpoints.write_llama(tmp_path / "tiny")


def alone(folder: Path) -> list[int]:
    """The ids that the engine gives by itself."""
    entry = Catalog.parse(f"tiny={folder}", folder).entry()
    checkpoint = load_checkpoint(entry, device="cpu", dtype="float32")
    engine = Engine(checkpoint)
    engine.add(Request("alone", checkpoint.encode(PROMPT), SETTINGS))
    outputs = []
    while engine.has_work:
        outputs += engine.step()
    return [output.payload.token_id for output in outputs if isinstance(output.payload, TokenPicked)]


def test_a_run_through_everything_equals_the_engine_alone(lite_stack: Stack, folder: Path) -> None:
    environment = {
        "DECODELAB_REDIS_URL": lite_stack.valkey.url,
        "DECODELAB_DATABASE_URL": str(lite_stack.database.url),
        "DECODELAB_CHECKPOINTS": f"tiny={folder}",
        "DECODELAB_THREADS": "1",
    }
    worker = subprocess.Popen([sys.executable, "-m", "workers"], cwd=REPOSITORY, env={**os.environ, **environment})
    try:
        with lite_stack.valkey.client() as client:
            wait_until(lambda: client.zcard(WORKERS_KEY), what="the worker's presence")
        runs = [lite_stack.submit(PROMPT, SETTINGS, checkpoint="tiny") for _ in range(2)]
        for run_id in runs:
            run = lite_stack.wait_ended(run_id)
            assert run.stop_reason == "max_tokens"
            events = lite_stack.check(run_id)
            assert token_ids(events) == alone(folder)
            ended = events[-1].payload
            assert isinstance(ended, Ended)
            assert ended.timing.ttft_ms is not None
            assert (ended.passes.prefill, ended.passes.decode) == (1, 39)
        worker.terminate()
        assert worker.wait() == 0
    finally:
        worker.kill()
        worker.wait()
