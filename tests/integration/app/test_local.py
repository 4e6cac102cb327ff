"""`--local` as a person or a script meets it: real processes, a tiny checkpoint, no stack."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import checkpoints
from tests.fakes.services import REPOSITORY, wait_until

Start = Callable[..., subprocess.Popen[bytes]]
ENDLESS = '{"max_tokens": 100000, "ignore_eos": true, "seed": 1}'


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    return checkpoints.write_llama(folder, max_position_embeddings=100_000)


@pytest.fixture
def start(checkpoint: Path, tmp_path: Path) -> Iterator[Start]:
    processes = []

    def run(*arguments: str | bytes) -> subprocess.Popen[bytes]:
        variables = {"DATA": str(tmp_path), "CHECKPOINTS": f"tiny={checkpoint}", "THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", *arguments, "--local"],
            cwd=REPOSITORY,
            env={**os.environ, **{f"DECODELAB_{name}": value for name, value in variables.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def interrupt(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Ctrl-C as a terminal sends it: to the whole group."""
    os.killpg(process.pid, signal.SIGINT)
    return process.communicate(timeout=60)


def wait_for_engine(process: subprocess.Popen[bytes]) -> None:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_until(lambda: children.read_text().strip(), what="the engine's process")


def test_ctrl_c_ends_the_run_as_cancelled_with_what_was_shown(start: Start) -> None:
    process = start("generate", "the quick brown fox", "--settings", ENDLESS)
    assert process.stdout is not None
    shown = process.stdout.read(20)
    out, err = interrupt(process)
    assert process.returncode == 130
    assert b"[cancelled, " in err
    assert b"Traceback" not in err
    assert len(shown + out) > 20


@pytest.mark.parametrize("delay_s", [0, 5])
def test_ctrl_c_leaves_one_json_object(start: Start, delay_s: float) -> None:
    """While the engine begins to load, and later."""
    process = start("generate", "the quick brown fox", "--settings", ENDLESS, "--json")
    wait_for_engine(process)
    time.sleep(delay_s)
    out, err = interrupt(process)
    assert process.returncode == 130, err
    assert b"Traceback" not in err
    run: dict[str, Any] = json.loads(out)
    assert (run["stop"]["reason"], run["status"]) == ("cancelled", "cancelled")
    assert run["text"] == "".join(token["text"] for token in run["tokens"])


def test_ctrl_c_ends_every_arm_of_a_comparison(start: Start) -> None:
    process = start("compare", "the lazy dog", "--arm", ENDLESS, "--arm", ENDLESS, "--json")
    wait_for_engine(process)
    out, err = interrupt(process)
    assert process.returncode == 130, err
    assert [arm["stop"]["reason"] for arm in json.loads(out)["arms"]] == ["cancelled", "cancelled"]


def test_a_prompt_that_is_no_text_is_refused(start: Start) -> None:
    out, err = (process := start("generate", b"a\xff", "--json")).communicate(timeout=60)
    assert process.returncode == 2, err
    error = json.loads(out)["error"]
    assert (error["code"], error["field"]) == ("invalid_prompt", "prompt")


def test_a_constrained_run_satisfies_its_constraint_and_tells_its_tax(start: Start) -> None:
    settings = {"constraint": {"json_schema": {"enum": ["the fox", 17]}}, "seed": 3}
    process = start("generate", "the quick brown fox", "--settings", json.dumps(settings), "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    run = json.loads(out)
    assert json.loads(run["text"]) in ("the fox", 17)
    assert run["stop"]["reason"] == "constraint_complete"
    assert run["settings"]["constraint"] == settings["constraint"]
    assert sum(token["tax"]["bits"] for token in run["tokens"]) > 5
    assert all("constraint" in token["kept"] for token in run["tokens"])


def test_a_constraint_that_nothing_satisfies_is_refused(start: Start) -> None:
    settings = '{"constraint": {"regex": "[^\\\\s\\\\S]"}}'
    out, err = (process := start("generate", "x", "--settings", settings, "--json")).communicate(timeout=60)
    assert process.returncode == 2, err
    error = json.loads(out)["error"]
    assert (error["code"], error["field"]) == ("invalid_setting", "constraint")


def test_no_arm_runs_where_a_later_one_is_refused(start: Start) -> None:
    arms = ("--arm", ENDLESS, "--arm", '{"stop_token_ids": [100000]}')
    out, err = (process := start("compare", "the", *arms)).communicate(timeout=60)
    assert (process.returncode, out) == (2, b"")
    assert b"stop_token_ids" in err


def test_more_requests_and_events_than_both_pipes_hold(start: Start) -> None:
    """The child tells of its first run long before it reads its last request: nobody may wait for the other."""
    arm = ("--arm", '{"max_tokens": 4, "alternatives": 50}')
    process = start("compare", "the quick brown fox " * 300, *arm, *arm, "--seeds", "16", "--json")
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert len(json.loads(output)["arms"]) == 32


def test_a_score_names_what_the_settings_forbid(start: Start) -> None:
    process = start("score", "the quick", " lazy dog", "--settings", '{"banned": [" dog"]}', "--json")
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert (found["kind"], found["given_text"], found["text"]) == ("score", " lazy dog", " lazy dog")
    assert found["stop"]["reason"] == "max_tokens"
    assert found["first_impossible"]["position"] == 1
    assert (found["first_impossible"]["piece"], found["first_impossible"]["stage"]) == (" dog", "bias")
    assert (found["logprob"], found["perplexity"], found["tokens"][1]["logprob"]) == (None, None, None)
    assert found["raw_logprob"] == pytest.approx(sum(t["raw_logprob"] for t in found["tokens"]), abs=1e-9)


def test_a_score_on_a_terminal(start: Start) -> None:
    process = start("score", "the quick", " lazy dog", "--settings", '{"temperature": 0}')
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert b"processed   impossible" in out
    assert b"temperature removes it" in out


def test_a_beam_search_prints_its_winner_and_its_lineage(start: Start) -> None:
    settings = {"num_beams": 4, "max_tokens": 6, "ignore_eos": True}
    process = start("generate", "the quick brown fox", "--settings", json.dumps(settings), "--json")
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    run: dict[str, Any] = json.loads(out)
    assert (run["stop"]["reason"], len(run["tokens"]), run["passes"]["decode"]) == ("max_tokens", 6, 5)
    beams = run["beams"]
    total = sum(token["logprob"] for token in run["tokens"])
    assert beams["sequence_score"] == pytest.approx(total / 6, abs=1e-5)
    assert (len(beams["steps"]), len(beams["beam_indices"])) == (6, 6)


def test_a_beam_search_with_stop_strings_is_refused_by_name(start: Start) -> None:
    out, err = start("generate", "the", "--settings", '{"num_beams": 4, "stop": ["x"]}', "--json").communicate(
        timeout=60
    )
    error = json.loads(out)["error"]
    assert (error["code"], error["field"]) == ("invalid_setting", "stop"), err
    assert "num_beams is 4" in error["message"]
