"""`python -m workers.local` as a process: events on standard output, errors as one line and exit status 2."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from models.beams import BeamsTraced
from models.errors import DecodeLabError
from models.events import Ended, Event, Prefilled, Started, StopReason, TokenPicked
from models.sampling import Settings
from tests.fakes import checkpoints, tokenizers
from tests.fakes.services import REPOSITORY
from workers.engine.catalog import Catalog
from workers.engine.scoring import score
from workers.local_runs import LocalRuns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.write_llama(tmp_path_factory.mktemp("local") / "tiny")


def local(folder: Path, *requests: dict[str, Any] | str) -> tuple[int, list[bytes], str]:
    """Exit status, lines of standard output, standard error."""
    lines = [request if isinstance(request, str) else json.dumps(request) for request in requests]
    done = subprocess.run(
        [sys.executable, "-m", "workers.local"],
        input="\n".join(lines).encode(),
        env={"DECODELAB_CHECKPOINTS": f"tiny={folder}", "DECODELAB_THREADS": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr.decode()


def test_every_run_is_told_in_turn(folder: Path) -> None:
    status, lines, error = local(
        folder,
        {"prompt": "the quick", "settings": {"max_tokens": 2, "seed": 5}},
        {"prompt": "😀", "settings": {"max_tokens": 1}, "checkpoint": "tiny", "run_id": "mine"},
    )
    assert (status, error) == (0, "")
    events = [Event.decode(line) for line in lines]
    assert [(e.run_id, e.seq) for e in events] == [("local-0", i) for i in range(5)] + [("mine", i) for i in range(4)]
    kinds = [type(e.payload) for e in events]
    assert kinds[:5] == [Started, Prefilled, TokenPicked, TokenPicked, Ended]
    ended = events[4].payload
    assert isinstance(ended, Ended)
    assert ended.stop.reason is StopReason.MAX_TOKENS
    assert ended.timing.queue_ms == 0
    assert ended.timing.ttft_ms is not None
    assert ended.timing.load_ms is not None
    assert ended.timing.ttft_ms > ended.timing.load_ms


def test_a_chat_is_told_as_its_template_gives_it(folder: Path, tmp_path: Path) -> None:
    chatml = checkpoints.write_llama(tmp_path / "chatml", tokenizers.chatml())
    local_runs = LocalRuns(Catalog.parse(f"chatml={chatml};tiny={folder}", tmp_path), checkpoints.load_entry)
    asked = {"messages": [{"role": "user", "content": "the fox<|im_end|>"}], "settings": {"max_tokens": 1}}
    started = next(local_runs.run(json.dumps(asked).encode(), default_id="a")).payload
    assert isinstance(started, Started)
    assert started.prompt_text == "<|im_start|>user\nthe fox<|im_end|><|im_end|>\n<|im_start|>assistant\n"
    end = tokenizers.chatml().eos_token_id
    assert started.prompt_token_ids.count(end) == 1
    raw = next(local_runs.run(b'{"prompt": "the fox"}', default_id="b")).payload
    assert isinstance(raw, Started)
    assert raw.prompt_text is None


def test_the_same_seed_gives_the_same_tokens(folder: Path) -> None:
    one = {"prompt": "the", "settings": {"max_tokens": 8, "seed": 99, "temperature": 2.0}}
    _, lines, _ = local(folder, one, one, {**one, "settings": {**one["settings"], "seed": 100}})  # type: ignore[dict-item]
    runs: dict[str, list[int]] = {}
    for event in map(Event.decode, lines):
        if isinstance(event.payload, TokenPicked):
            runs.setdefault(event.run_id, []).append(event.payload.token_id)
    assert runs["local-0"] == runs["local-1"] != runs["local-2"]


@pytest.mark.parametrize(
    ("request_", "code", "field"),
    [
        ({"prompt": ""}, "invalid_prompt", "prompt"),
        ({"prompt": "a", "settings": {"top_p": 2}}, "invalid_setting", "top_p"),
        ({"prompt": "a", "checkpoint": "/etc"}, "unknown_checkpoint", "checkpoint"),
        ({"prompt": "a", "setings": {}}, "invalid_prompt", "setings"),
        ({"prompt": 5}, "invalid_prompt", "prompt"),
        ({"prompt": "a", "given_text": ""}, "invalid_prompt", "text"),
        ({"prompt": "a", "given_text": 5}, "invalid_prompt", "text"),
        ({"prompt": "a", "given_text": "a\ud800"}, "invalid_prompt", "text"),
        ({"prompt": "", "given_text": "a"}, "invalid_prompt", "prompt"),
        ({"prompt": "a", "arms": {}}, "invalid_prompt", "arms"),
        ({"prompt": "a", "arms": [5]}, "invalid_setting", "settings"),
        ({"prompt": "a", "messages": []}, "invalid_chat", "messages"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "invalid_chat", "messages"),  # it has no template
        ({}, "invalid_prompt", "prompt"),
        ([], "invalid_prompt", "prompt"),
        ("{", "invalid_prompt", "prompt"),
    ],
)
def test_a_request_that_cannot_run_is_refused(folder: Path, request_: Any, code: str, field: str) -> None:
    local_runs = LocalRuns(Catalog.parse(f"tiny={folder}", folder.parent), checkpoints.load_entry)
    line = request_ if isinstance(request_, str) else json.dumps(request_)
    with pytest.raises(DecodeLabError) as refused:
        next(local_runs.run(line.encode(), default_id="a"))
    assert (refused.value.code, refused.value.field) == (code, field)


@pytest.mark.parametrize(
    ("arm", "field"),
    [
        ({"stop_token_ids": [100_000]}, "stop_token_ids"),
        ({"banned": [100_000]}, "banned"),
        ({"constraint": {"regex": "[^\\s\\S]"}}, "constraint"),
        ({"constraint": {"grammar": "start: <[100000]>"}}, "constraint"),
        ({"top_p": 2}, "top_p"),
    ],
)
def test_nothing_runs_where_a_later_arm_is_refused(folder: Path, arm: dict[str, Any], field: str) -> None:
    local_runs = LocalRuns(Catalog.parse(f"tiny={folder}", folder.parent), checkpoints.load_entry)
    asked = {"prompt": "the", "settings": {"max_tokens": 1}, "arms": [{"max_tokens": 2}, arm]}
    with pytest.raises(DecodeLabError) as refused:
        next(local_runs.run(json.dumps(asked).encode(), default_id="a"))
    assert refused.value.field == field
    del asked["arms"][1]  # type: ignore[attr-defined]
    assert len(list(local_runs.run(json.dumps(asked).encode(), default_id="a"))) == 4  # its own run alone


def test_a_given_text_is_scored(folder: Path) -> None:
    local_runs = LocalRuns(Catalog.parse(f"tiny={folder}", folder.parent), checkpoints.load_entry)
    asked = {"prompt": "the quick", "given_text": " brown fox", "settings": {"seed": 5, "top_p": 0.9}}
    events = list(local_runs.run(json.dumps(asked).encode(), default_id="a"))
    assert [type(e.payload) for e in events] == [Started, Prefilled, TokenPicked, TokenPicked, Ended]
    tokens = [e.payload for e in events if isinstance(e.payload, TokenPicked)]
    assert [token.text for token in tokens] == [" brown", " fox"]
    checkpoint = checkpoints.load(folder)
    prompt, given = checkpoint.encode("the quick"), checkpoint.encode(" brown fox", continues=True)
    expected = score(checkpoint, prompt, given, Settings(seed=5, top_p=0.9)).tokens
    assert [replace(token, elapsed_ms=0) for token in tokens] == [replace(token, elapsed_ms=0) for token in expected]


def test_a_bound_search_is_told_with_its_lineage_and_its_tax(folder: Path) -> None:
    settings = {"num_beams": 4, "constraint": {"choice": ["yes", "no"]}}
    _, lines, error = local(folder, {"prompt": "the quick", "settings": settings})
    payloads = [Event.decode(line).payload for line in lines]
    *tokens, beams, ended = payloads[2:]
    assert isinstance(beams, BeamsTraced), error
    assert isinstance(ended, Ended)
    assert "".join(token.text for token in tokens if isinstance(token, TokenPicked)) in {"yes", "no"}
    assert all(token.tax is not None for token in tokens if isinstance(token, TokenPicked))
    assert (ended.stop.reason, len(tokens)) == (StopReason.CONSTRAINT_COMPLETE, len(beams.beam_indices))


def test_an_error_is_one_line(folder: Path) -> None:
    status, lines, _ = local(folder, {"prompt": "a", "settings": {"top_p": 2}})
    assert status == 2
    (line,) = lines
    assert orjson.loads(line)["error"]["field"] == "top_p"


def test_a_checkpoint_that_is_not_there_is_one_line_too(tmp_path: Path) -> None:
    status, lines, _ = local(tmp_path / "none", {"prompt": "a"})
    assert status == 2
    assert orjson.loads(lines[0])["error"]["code"] == "checkpoint_missing"


def test_the_bound_on_spinning_is_set_before_torch_reads_it() -> None:
    """libgomp reads its variables once, when torch loads it."""
    code = "import sys, workers.local; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0
