"""Runs out as files and in again, exactly, on both databases and through the HTTP routes."""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import delete, inspect

from app.api.transfer import IMPORT_TYPE, build_transfer_router
from app.history import History, RunFilter
from app.run_export import CSV_COLUMNS, json_line
from app.run_import import Findings, run_import
from models.db.experiments import Experiment
from models.db.ledger import token_row
from models.db.runs import Run, Token
from models.db.session import Database
from models.events import Event, Others, Resumed, StopReason, Tax, TokenPicked, to_json
from models.sampling import MAX_SEED, Settings
from tests.fakes.rows import new_run
from tests.unit.app.runs import candidate, events, token

TABLES: tuple[Any, ...] = (Token, Run, Experiment)
BRANCH = ("parent_id", "fork_position", "opening_ids")
EXPERIMENT = "0199b0c8-0000-7000-8000-00000000000e"


@pytest.fixture
def client(database: Database) -> Iterator[TestClient]:
    app = FastAPI()
    app.include_router(build_transfer_router(database))
    with TestClient(app) as client:
        yield client


def save(database: Database, **columns: Any) -> str:
    """An ended run of two attempts that holds what is hard to carry: odd text, bytes, removed tokens, a large seed."""
    run = new_run(settings=Settings(seed=MAX_SEED, top_k=2, logit_bias={3: -1.5}), status="finished")
    odd = token(
        0, 1, text=" \0é\u2028", token_bytes=b"\xff\x00", raw_logprob=-12.345678, rank=3, tax=Tax(0.5, 7),
        candidates=(candidate(1, None, None, removed_by="top_k"), candidate(2, -1e-6, -0.0, noise=0.1, causes=(1, 2),
        num_causes=9)), others=Others(0.1, 0.0),
    )  # fmt: skip
    first = events(run.id, [odd, token(1, 4, logprob=None)])
    told = [*first[:3], Event(run.id, 2, 3, Resumed(1)), *(Event(run.id, 2, e.seq + 1, e.payload) for e in first[3:])]
    values: dict[str, Any] = {
        "milestones": [orjson.loads(e.encode()) for e in told if not isinstance(e.payload, TokenPicked)],
        "text": " \0é\u2028w4 ", "num_tokens": 2, "attempt": 2, "mean_logprob": 1 / 3, "min_logprob": -12.345678,
        "stop_reason": StopReason.MAX_TOKENS.value, "stop": to_json(first[-1].payload.stop),  # type: ignore[union-attr]
        "ended_at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), "kv_bytes": 2**40, "capsule": {"torch": "2"},
        "tags": ["a", "ü"], "title": "\ufdd0 title", "note": "=1", "is_starred": True, "prompt_token_ids": [7, 8],
        "ended_published": True, **columns,
    }  # fmt: skip
    with database.write() as session:
        session.add(run)
        for name, value in values.items():
            setattr(run, name, value)
        session.flush()
        session.add_all(Token(**token_row(e)) for e in told if isinstance(e.payload, TokenPicked))
    return run.id


def everything(database: Database) -> dict[str, list[dict[str, Any]]]:
    """All rows, column by column."""
    with database.read() as session:
        return {table.__tablename__: sorted(map(_values, session.query(table)), key=repr) for table in TABLES}


def _values(row: Any) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in inspect(type(row)).columns}


def clear(database: Database) -> None:
    with database.write() as session:
        for table in TABLES:
            session.execute(delete(table))


def take(client: TestClient, body: bytes, *, preview: bool = False) -> dict[str, Any]:
    answer = client.post(f"/api/import?preview={preview}", content=body, headers={"content-type": IMPORT_TYPE})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_round_trip_is_exact(database: Database, client: TestClient) -> None:
    with database.write() as session:
        now = datetime.now(UTC)
        session.add(Experiment(id=EXPERIMENT, created_at=now, checkpoint="c", prompt="p\0", num_arms=2, title="E"))
    parent = save(database, experiment_id=EXPERIMENT, arm_index=1, sample_index=0)
    branch = save(database, parent_id=parent, fork_position=1, opening_ids=[1, 4])
    save(database, kind="score", given_text=" \0é\u2028w4 ")
    before, exported = everything(database), client.get("/api/export").content
    assert len(exported.splitlines()) == 3
    told = {values["id"]: values for values in map(orjson.loads, exported.splitlines())}
    assert {name: told[branch][name] for name in BRANCH} == dict(zip(BRANCH, (parent, 1, [1, 4]), strict=True))
    clear(database)
    preview = take(client, exported, preview=True)
    assert (preview["new"], preview["here"], preview["refused"], preview["orphans"]) == (3, 0, 0, 0)
    assert everything(database)["runs"] == [], "a preview adds nothing"
    added = take(client, exported)
    assert {**added, "preview": True} == preview
    assert everything(database) == before
    assert client.get("/api/export").content == exported
    assert take(client, exported)["here"] == 3
    assert everything(database) == before


def test_an_imported_run_is_searched_and_filtered_as_any(database: Database, client: TestClient) -> None:
    save(database, prompt="needle", tags=["t"])
    exported = client.get("/api/export").content
    clear(database)
    take(client, exported)
    history = History(database)
    assert len(history.page(RunFilter(text="needle", tag="t", min_temperature=1)).rows) == 1


def test_a_parent_that_is_nowhere_is_said(database: Database, client: TestClient) -> None:
    child = save(database, parent_id=save(database))
    exported = json_line(database, child)
    clear(database)
    assert take(client, exported)["orphans"] == 1
    assert History(database).run(child).parent_id is None


def test_a_deleted_run_can_be_imported_again(database: Database, client: TestClient) -> None:
    run_id = save(database)
    exported = json_line(database, run_id)
    History(database).discard([run_id])
    assert take(client, exported)["new"] == 1
    assert History(database).run(run_id).title == "\ufdd0 title"


def test_a_parent_that_comes_back_has_its_branches_again(database: Database, client: TestClient) -> None:
    parent = save(database)
    child = save(database, parent_id=parent, fork_position=1, opening_ids=[1, 7])
    exported = json_line(database, parent)
    History(database).discard([parent])
    assert take(client, exported)["new"] == 1
    assert History(database).run(child).parent_id == parent
    assert [relative.id for relative in History(database).family(child)] == [parent, child]


@pytest.mark.parametrize("opening", [[1], [1, 4], [1, 4, 9]])
def test_a_branch_that_ended_before_or_after_its_openings_end_comes_in(database: Database, opening: list[int]) -> None:
    run_id = save(database, fork_position=0, opening_ids=opening)
    exported = json_line(database, run_id)
    clear(database)
    assert run_import(database, [exported], is_preview=False).num_new == 1
    assert History(database).run(run_id).opening_ids == tuple(opening)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"opening_ids": [1, 5], "fork_position": 1}, "its own opening"),
        ({"opening_ids": [1, "4"], "fork_position": 1}, "no number"),
        ({"opening_ids": [True], "fork_position": 0}, "no number"),
        ({"opening_ids": {"1": 4}, "fork_position": 1}, "opening_ids is"),
        ({"opening_ids": [1, 4], "fork_position": None}, "no place"),
        ({"opening_ids": [1, 4], "fork_position": 2}, "no place"),
        ({"opening_ids": [], "fork_position": 0}, "no place"),
    ],
)
def test_a_branch_whose_opening_is_not_its_own_is_refused(
    database: Database, columns: dict[str, Any], reason: str
) -> None:
    line = json_line(database, save(database, opening_ids=[1, 4], fork_position=1))
    clear(database)
    changed = broken({f"record.run.{name}": value for name, value in columns.items()}, line)
    found = run_import(database, [changed], is_preview=False)
    assert (found.num_new, found.num_refused) == (0, 1)
    assert reason in found.refused[0]


def broken(change: dict[str, Any], line: bytes) -> bytes:
    values = orjson.loads(line)
    for place, value in change.items():
        *way, last = place.split(".")
        inner = values
        for name in way:
            inner = inner[int(name)] if isinstance(inner, list) else inner[name]
        inner[int(last) if isinstance(inner, list) else last] = value
    return orjson.dumps(values)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"record.run.status": "running"}, "was running"),
        ({"record.run.id": "../../x"}, "no run ../../x"),
        ({"record.run.id": "0199b0c8-0000-7000-8000-000000000001"}, "of another run"),
        ({"record.run.settings": "x"}, "settings is"),
        ({"record.run.prompt": None}, "prompt is missing"),
        ({"record.run.num_tokens": "many"}, "num_tokens is"),
        ({"record.run.created_at": "yesterday"}, "damaged"),
        ({"record.run.created_at": "2026-01-02T03:04:05"}, "has no zone"),
        ({"record.run.num_tokens": 2**31}, "does not hold"),
        ({"record.run.num_tokens": True}, "num_tokens is True"),
        ({"record.run.kv_bytes": 2**63}, "does not hold"),
        ({"record.run.num_tokens": 1e300}, "num_tokens is"),
        ({"record.run.seed": "-1"}, "seed is"),
        ({"record.run.seed": str(2**64)}, "seed is"),
        ({"record.run.seed": "٣"}, "seed is"),
        ({"record.run.checkpoint": "c" * 129}, "checkpoint is"),
        ({"record.run.checkpoint": "c\0"}, "checkpoint is"),
        ({"record.run.stop": {"reason": "tired"}}, "damaged"),
        ({"record.run.messages": [{"role": 7}]}, "has the role 7"),
        ({"record.run.prompt_token_ids": [1, "2"]}, "no number"),
        ({"tokens.1.position": 0}, "there twice"),
        ({"tokens.1.position": 2}, "missing"),
        ({"tokens.0.token_id": 2**31}, "does not hold"),
        ({"record.told.0": [2**31, 1]}, "does not hold"),
        ({"tokens.0.raw_logprob": None}, "damaged"),
        ({"record.run.tags": [1]}, "a tag is no text"),
        ({"record.run.milestones.0": {"type": "nonsense"}}, "damaged"),
        ({"record.run.stop_reason": "tired"}, "damaged"),
        ({"record.format": 2}, "no record of format 1"),
        ({"record": None}, "no record of format 1"),
        ({"record.told": []}, "damaged"),
        ({"tokens.0.bytes": "!"}, "damaged"),
        ({"tokens.0.rank": "first"}, "damaged"),
        ({"record.run.experiment_id": EXPERIMENT}, "comparison"),
    ],
)
def test_a_line_that_is_wrong_is_refused_and_the_others_go_on(
    database: Database, change: dict[str, Any], reason: str
) -> None:
    first, second = (json_line(database, save(database)) for _ in range(2))
    clear(database)
    found = run_import(database, [broken(change, first), b"\n", second], is_preview=False)
    assert (found.num_new, found.num_refused) == (1, 1)
    assert found.refused[0].startswith("line 1: ")
    assert reason in found.refused[0]
    assert len(list(History(database).ids(RunFilter()))) == 1


@pytest.mark.parametrize("line", [b"{", b"[]", b"1", b"null", b"\xff", b"{}", b'{"id": "x"}', b"id,prompt"])
def test_what_is_no_exported_run(database: Database, line: bytes) -> None:
    found = run_import(database, [line], is_preview=False)
    assert (found.num_new, found.num_refused) == (0, 1)
    assert Findings(num_refused=1, refused=found.refused) == found


def test_a_foreign_page_cannot_import(client: TestClient) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = client.post("/api/import", content=b"", headers={"content-type": content_type})
        assert answer.status_code == 415


def test_csv_has_a_line_for_each_run_and_no_formula(database: Database, client: TestClient) -> None:
    run_id = save(database, prompt="=HYPERLINK(1)", fork_position=1, opening_ids=[1, 4])
    answer = client.get("/api/export?format=csv")
    assert answer.headers["content-disposition"].startswith('attachment; filename="decodelab-runs-')
    (row,) = csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"), newline=""))
    assert tuple(row) == CSV_COLUMNS
    assert (row["id"], row["prompt"], row["note"], row["seed"]) == (run_id, "'=HYPERLINK(1)", "'=1", str(MAX_SEED))
    assert (row["parent_id"], row["fork_position"], row["opening_ids"]) == ("", "1", "[1,4]")
    assert (row["min_raw_logprob"], row["mean_raw_logprob"]) == ("-12.345678", repr(1 / 3))


def test_an_export_chooses_by_id_comparison_and_filter(database: Database, client: TestClient) -> None:
    with database.write() as session:
        session.add(Experiment(id=EXPERIMENT, created_at=datetime.now(UTC), checkpoint="c", prompt="p", num_arms=1))
    one, arm = save(database, prompt="one"), save(database, experiment_id=EXPERIMENT)
    save(database, prompt="three", is_starred=False)

    def ids(query: str) -> list[str]:
        return [orjson.loads(line)["id"] for line in client.get(f"/api/export?{query}").content.splitlines()]

    assert ids(f"id={one}") == [one]
    assert ids(f"id={one}&comparison={EXPERIMENT}&id={one}") == [one, arm]
    assert ids("q=one") == [one]
    assert ids("starred=yes") == [arm, one]
    assert client.get("/api/export?q=%25").status_code == 400
    assert client.get("/api/export?id=../x").status_code == 404
    assert client.get("/api/export?format=exe").status_code == 400


def test_a_damaged_run_does_not_stop_the_export(database: Database, client: TestClient) -> None:
    damaged, whole = save(database, milestones=[{"type": "nonsense"}]), save(database)
    first, second = (orjson.loads(line) for line in client.get("/api/export").content.splitlines())
    assert (first["id"], second["id"]) == (whole, damaged)
    assert "damaged" in second["error"]["message"]
