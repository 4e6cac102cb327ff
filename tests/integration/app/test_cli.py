"""The commands as a person or a script meets them: real processes, a worker played by hand."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.history import History, RunFilter
from app.settings import AppSettings
from app.submit import Submitter
from models.events import Status, StopReason
from models.sampling import Settings
from tests.fakes.services import Valkey, wait_until
from tests.integration.app.by_hand import Worker
from tests.unit.app.runs import events, token

REPOSITORY = Path(__file__).parents[3]


class Shell:
    """`decodelab` with the environment of this test's stack."""

    def __init__(self, settings: AppSettings) -> None:
        self._environment = settings.environment()
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "app.cli", *arguments]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, cwd=REPOSITORY, env=self._environment, **pipes)
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


@pytest.fixture
def decodelab(app_settings: AppSettings) -> Iterator[Shell]:
    shell = Shell(app_settings)
    yield shell
    shell.close()


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database is enough: the queries are tested on both elsewhere."""
    return sqlite_url


def wait_for_run(history: History, worker: Worker) -> str:
    wait_until(lambda: worker.queued_ids(), what="the queued run")
    return worker.queued_ids()[0]


def test_generate_prints_one_object(decodelab: Shell, worker: Worker, history: History) -> None:
    worker.appear()
    process = decodelab.start("generate", "two", "--settings", '{"temperature": 0, "max_tokens": 2}', "--json")
    run_id = wait_for_run(history, worker)
    told = events(run_id, [token(0, 1, text=" a"), token(1, 2, text=" b")])
    worker.save(run_id, told)  # an ending is saved before it is told
    worker.send(told)
    out, _ = process.communicate(timeout=60)
    values = json.loads(out)
    assert process.returncode == 0
    assert (values["id"], values["text"], values["stop"]["reason"]) == (run_id, " a b", "max_tokens")
    assert values["settings"]["temperature"] == 0


def test_text_appears_as_it_arrives(decodelab: Shell, worker: Worker, history: History) -> None:
    worker.appear()
    process = decodelab.start("generate", "two")
    run_id = wait_for_run(history, worker)
    told = events(run_id, [token(0, 1, text=" a"), token(1, 2, text=" b")], StopReason.EOS)
    worker.save(run_id, [])
    worker.send(told[:3])
    assert process.stdout is not None
    assert process.stdout.read(2) == " a"  # while the run goes on
    worker.save(run_id, told)
    worker.send(told[3:])
    out, err = process.communicate(timeout=60)
    assert out == " b\n"
    assert "eos" in err
    assert run_id in err
    assert process.returncode == 0


def test_a_failed_run_has_exit_status_1(decodelab: Shell, worker: Worker, history: History) -> None:
    worker.appear()
    process = decodelab.start("generate", "two", "--json")
    run_id = wait_for_run(history, worker)
    worker.save(run_id, events(run_id, [token(0, 1)], StopReason.ERROR_NUMERICAL))
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(out)["stop"]["reason"] == "error:numerical"


def test_ctrl_c_cancels_the_run(decodelab: Shell, worker: Worker, history: History) -> None:
    worker.appear()
    process = decodelab.start("generate", "two")
    run_id = wait_for_run(history, worker)
    told = events(run_id, [token(0, 1, text=" a")], StopReason.CANCELLED)
    worker.save(run_id, [])
    worker.send(told[:3])
    assert process.stdout is not None
    assert process.stdout.read(2) == " a"
    process.send_signal(signal.SIGINT)
    wait_until(lambda: history.run(run_id).cancel_requested, what="the request to cancel")
    worker.save(run_id, told)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "cancelled" in err
    assert "Traceback" not in err


def test_ctrl_c_ends_a_waiting_run(decodelab: Shell, worker: Worker, history: History) -> None:
    worker.appear()
    process = decodelab.start("generate", "two", "--json")
    run_id = wait_for_run(history, worker)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["status"] == "cancelled"
    assert history.run(run_id).status is Status.CANCELLED


def test_compare_prints_arms_and_divergence(decodelab: Shell, worker: Worker, history: History) -> None:
    worker.appear()
    process = decodelab.start("compare", "two", "--arm", "{}", "--arm", '{"top_k": 1}', "--json")
    wait_until(lambda: len(worker.queued_ids()) == 2, what="both arms")
    for run_id, last in zip(worker.queued_ids(), [2, 3], strict=True):
        worker.save(run_id, events(run_id, [token(0, 1), token(1, last)]))
    out, _ = process.communicate(timeout=60)
    values = json.loads(out)
    assert process.returncode == 0
    assert [arm["id"] for arm in values["arms"]] == worker.queued_ids()
    assert [(d["arm"], d["position"]) for d in values["divergence"]] == [(1, 1)]
    assert values["prefill_passes"] == 2
    assert values["arms"][0]["seed"] == values["arms"][1]["seed"]


@pytest.mark.parametrize(
    ("arguments", "code", "field"),
    [
        (["generate", ""], "invalid_prompt", "prompt"),
        (["generate", "x" * 99], "invalid_prompt", "prompt"),
        (["generate", "x", "--settings", '{"temperature": -1}'], "invalid_setting", "temperature"),
        (["generate", "x", "--settings", '{"temperature": NaN}'], "invalid_setting", "temperature"),
        (["generate", "x", "--settings", "[1]"], "invalid_setting", "settings"),
        (["generate", "x", "--settings", "{"], "invalid_setting", "settings"),
        (["generate", "x", "--settings", '{"colour": 1}'], "invalid_setting", "colour"),
        (["generate", "x", "--checkpoint", "gpt-17"], "unknown_checkpoint", "checkpoint"),
        (["compare", "x", "--arm", "{}"], "limit", "arms"),
        (["compare", "x", "--arm", "{}", "--arm", '{"top_p": 0}'], "invalid_setting", "top_p"),
        (["compare", "x", "--arm", "{}", "--arm", "{}", "--seeds", "0"], "limit", "seeds"),
        (["runs", "show", "nope"], "not_found", "id"),
        (["runs", "delete", "nope"], "not_found", "id"),
    ],
)
def test_refusals_are_json_with_exit_status_2(
    decodelab: Shell, worker: Worker, arguments: list[str], code: str, field: str
) -> None:
    worker.appear()
    status, out, err = decodelab(*arguments, "--json")
    assert status == 2
    error = json.loads(out)["error"]
    assert (error["code"], error["field"]) == (code, field)
    assert error["message"]
    assert err == ""


def test_without_json_an_error_is_a_sentence(decodelab: Shell, worker: Worker) -> None:
    status, out, err = decodelab("generate", "x")
    assert (status, out) == (2, "")
    assert err.startswith("decodelab: No live worker serves")
    assert len(err.splitlines()) == 1


def test_redis_away_and_database_without_tables(decodelab: Shell, valkey: Valkey, tmp_path: Path) -> None:
    valkey.kill()
    status, out, _ = decodelab("generate", "x", "--json")
    assert (status, json.loads(out)["error"]["code"]) == (2, "broker_unavailable")
    empty = Shell(AppSettings(data=tmp_path / "new", redis_url=valkey.url))
    status, out, _ = empty("runs", "list", "--json")
    assert (status, json.loads(out)["error"]["code"]) == (2, "database_unavailable")


def test_a_wrong_environment_names_the_variable(app_settings: AppSettings) -> None:
    environment = {**os.environ, "DECODELAB_PORT": "70000"}
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "runs", "list", "--json"],
        cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["field"] == "DECODELAB_PORT"


def test_runs_are_listed_shown_exported_and_deleted(
    decodelab: Shell, submitter: Submitter, worker: Worker, history: History, tmp_path: Path
) -> None:
    worker.appear()
    made = [submitter.submit(f"prompt {i}", Settings(seed=i)) for i in range(3)]
    for run_id in made:
        worker.save(run_id, events(run_id, [token(0, 1, text="\0é")]))
    _, out, _ = decodelab("runs", "list", "--limit", "2", "--json")
    listed = json.loads(out)
    assert [row["id"] for row in listed["runs"]] == [made[2], made[1]]
    _, out, _ = decodelab("runs", "list", "--before", listed["next"], "--json")
    assert [row["id"] for row in json.loads(out)["runs"]] == [made[0]]
    _, out, _ = decodelab("runs", "list", "--text", "prompt 1")
    assert made[1] in out
    assert made[0] not in out
    _, shown, _ = decodelab("runs", "show", made[0], "--json")
    assert json.loads(shown)["text"] == "\0é"
    status, out, _ = decodelab("runs", "show", made[0])
    assert status == 0
    assert "prompt 0" in out
    _, exported, _ = decodelab("runs", "export", made[0])
    assert {name: value for name, value in json.loads(exported).items() if name != "record"} == json.loads(shown)
    target = tmp_path / "runs.jsonl"
    decodelab("runs", "export", "--output", str(target))
    assert [json.loads(line)["id"] for line in target.read_text().splitlines()] == made[::-1]
    status, out, _ = decodelab("runs", "delete", made[0], made[1], "--json")
    assert (status, json.loads(out)) == (0, {"deleted": made[:2]})
    assert [row.id for row in history.page(RunFilter()).rows] == [made[2]]
    for options, number in ((["--preview"], 1), ([], 3)):
        status, out, _ = decodelab("runs", "import", str(target), *options, "--json")
        assert (status, json.loads(out)["new"], json.loads(out)["here"]) == (0, 2, 1)
        assert len(history.page(RunFilter()).rows) == number


def test_doctor_finds_what_is_well_and_what_is_missing(decodelab: Shell, worker: Worker, valkey: Valkey) -> None:
    status, out, _ = decodelab("doctor", "--json")
    found = {check["name"]: check for check in json.loads(out)["checks"]}
    assert status == 1
    assert [n for n, check in found.items() if not check["ok"]] == ["workers", "page"]
    assert "make up" in found["workers"]["advice"]
    worker.appear()
    _, out, _ = decodelab("doctor")
    assert "ok       worker: w-tiny serves tiny on cpu in float32" in out
    valkey.kill()
    _, out, _ = decodelab("doctor", "--json")
    found = {check["name"]: check for check in json.loads(out)["checks"]}
    assert not found["redis"]["ok"]
    assert found["database"]["ok"]


def test_no_command_of_the_page_loads_a_network() -> None:
    code = "import sys, app.cli, app.main, app.launcher, app.running, app.doctor; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
