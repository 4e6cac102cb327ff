"""`python -m workers` as an operator starts it: what is missing is told in one sentence, with its exit status."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.services import REPOSITORY, Valkey, free_port
from workers.connections import check_stack
from workers.settings import WorkerSettings


@pytest.fixture
def start(valkey: Valkey, sqlite_url: str, tmp_path: Path) -> Iterator["Starter"]:
    starter = Starter({"REDIS_URL": valkey.url, "DATABASE_URL": sqlite_url, "DATA": str(tmp_path)})
    yield starter
    for process in starter.processes:
        process.kill()
        process.wait()


class Starter:
    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.processes: list[subprocess.Popen[str]] = []

    def __call__(self, **changes: str) -> subprocess.Popen[str]:
        variables = {f"DECODELAB_{name}": value for name, value in {**self.settings, **changes}.items()}
        process = subprocess.Popen(
            [sys.executable, "-m", "workers"],
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process


def test_each_thing_that_is_missing_is_told_in_one_sentence(start: Starter, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    cases = {
        "Redis does not answer": (69, start(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0")),
        "lacks what is needed (no such table: runs). Run `python -m alembic upgrade head`": (
            69,
            start(DATABASE_URL=f"sqlite:///{tmp_path}/new.db"),
        ),
        "The database does not answer": (69, start(DATABASE_URL="postgresql+psycopg://nobody@127.0.0.1:1/none")),
        "DECODELAB_ROWS": (78, start(ROWS="0")),
        "no-such-name": (78, start(SERVE="no-such-name")),
        "/nowhere": (78, start(CHECKPOINTS="mine=/nowhere/at/all")),
        str(broken): (78, start(CHECKPOINTS=f"mine={broken}")),
    }
    for words, (status, process) in cases.items():
        output, errors = process.communicate(timeout=120)
        last = errors.strip().splitlines()[-1]
        assert process.returncode == status, errors
        assert last.startswith("The worker cannot start: "), errors
        assert words in last
        assert "Traceback" not in output + errors


def test_a_password_is_not_told(start: Starter) -> None:
    process = start(REDIS_URL=f"redis://:sesame@127.0.0.1:{free_port()}/0")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 69
    assert "sesame" not in output + errors


def test_a_worker_beside_a_running_stack_is_told_where_that_has_its_redis(
    start: Starter, tmp_path: Path, valkey: Valkey
) -> None:
    """Another stack's Redis may well answer at the default address: joining it would be worse than not to start."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "stack.json").write_text(json.dumps({"pid": os.getpid(), "redis_url": url}))
    start.settings.pop("REDIS_URL")
    _, errors = (process := start()).communicate(timeout=60)
    last = errors.strip().splitlines()[-1]
    assert process.returncode == 78
    assert "`decodelab worker`" in last
    assert f"DECODELAB_REDIS_URL={url}" in last


@pytest.mark.parametrize("left", ["{}", "no json", '{"pid": 0, "redis_url": "redis://127.0.0.1:1/0"}'])
def test_what_a_stack_has_left_behind_keeps_no_worker_from_starting(tmp_path: Path, left: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "stack.json").write_text(left)
    check_stack(WorkerSettings(data=tmp_path))
