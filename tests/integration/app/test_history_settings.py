"""Filters by settings, and any filters together with searches and sorts, on both databases."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from app import search
from app.history import Bounds, History, RunFilter, Sort, SortKey
from models.db.runs import SETTINGS, Run
from models.db.session import Database
from models.events import Status, StopReason
from models.sampling import MAX_SEED, Settings
from tests.fakes.rows import new_run

START = datetime(2026, 3, 1, tzinfo=UTC)
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "temperature": (0.2, 1.0, 1.5),
    "top_k": (0, 40, 2**53 - 1),
    "top_p": (0.5, 0.95, 1.0),
    "min_p": (0.0, 0.05, 0.1),
    "typical_p": (0.2, 0.9, 1.0),
    "repetition_penalty": (0.9, 1.0, 1.1),
    "presence_penalty": (-2.0, 0.0, 0.5),
    "frequency_penalty": (-0.1, 0.0, 2.0),
    "num_beams": (1, 2, 16),
    "max_tokens": (0, 128, 1_000_000),
}
"""Of each setting three values, from the lowest to the highest."""


def run_id(number: int) -> str:
    return f"0199b0c8-0000-7000-8000-{number:012d}"


def save(database: Database, *runs: dict[str, Any]) -> None:
    with database.write() as session:
        session.add_all(
            new_run(**{"id": run_id(i), "created_at": START + timedelta(seconds=i), "status": "finished", **run})
            for i, run in enumerate(runs)
        )


def found(history: History, filters: RunFilter, sort: Sort | None = None, limit: int = 50) -> list[int]:
    """Numbers of the runs found, page after page."""
    numbers: list[int] = []
    before: str | None = None
    while True:
        page = history.page(filters, sort=sort or Sort(), before=before, limit=limit)
        numbers += [int(row.id[-12:]) for row in page.rows]
        before = page.next
        if before is None:
            return numbers


def test_each_setting_by_value_and_by_range(database: Database) -> None:
    assert set(VALUES) == set(SETTINGS)
    history = History(database)
    for name, values in VALUES.items():
        with database.write() as session:
            session.query(Run).delete()
        save(database, *({"settings": Settings(seed=1, **{name: value})} for value in values))
        low, middle, high = values
        asked = {
            Bounds(middle, middle): [1],
            Bounds(middle): [2, 1],
            Bounds(high=middle): [1, 0],
            Bounds(low, middle): [1, 0],
            Bounds(high, low): [],
        }
        for bounds, expected in asked.items():
            assert found(history, RunFilter(settings={name: bounds})) == expected, (name, bounds)


def test_a_seed_is_found_exactly(database: Database) -> None:
    save(database, *({"settings": Settings(seed=seed)} for seed in (0, 1, 10, MAX_SEED - 1, MAX_SEED)))
    history = History(database)
    assert found(history, RunFilter(seed=MAX_SEED)) == [4]
    assert found(history, RunFilter(seed=1)) == [1]
    assert found(history, RunFilter(seed=11)) == []


def test_settings_of_another_version_are_no_number_and_do_no_harm(database: Database) -> None:
    with database.write() as session:
        for number, settings in enumerate([{}, {"top_p": "high"}, {"top_p": None}, {"top_p": 0.5}]):
            run = new_run(id=run_id(number), created_at=START)
            run.settings = settings
            session.add(run)
    assert found(History(database), RunFilter(settings={"top_p": Bounds(0)})) == [3]


WORDS = ("paris", "parish", "lyon")
FEW = {"all are few": 10**6, "all are many": 0}


@pytest.mark.parametrize("few", FEW.values(), ids=list(FEW))
def test_any_question_is_answered_as_by_looking_at_every_run(
    database: Database, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Whichever way a question goes: the oracle goes through plain values."""
    monkeypatch.setattr(search, "_FEW_SQLITE", few)
    monkeypatch.setattr(search, "_FEW_POSTGRESQL", few)
    draw = random.Random(11)
    rows = [_drawn(draw) for _ in range(60)]
    save(database, *({k: v for k, v in row.items() if k != "is_deleted"} for row in rows))
    gone = [run_id(i) for i, row in enumerate(rows) if row["is_deleted"]]
    with database.write() as session:
        session.execute(update(Run).where(Run.id.in_(gone)).values(deleted_at=START))
    history = History(database)
    num_found = 0
    for _ in range(60):
        filters, fits = _asked(draw)
        sort = Sort(draw.choice(list(SortKey)), draw.random() < 0.5)
        expected = _in_order([i for i, row in enumerate(rows) if not row["is_deleted"] and fits(i, row)], rows, sort)
        assert found(history, filters, sort, limit=draw.choice([1, 4, 50])) == expected, (filters, sort)
        assert [int(i[-12:]) for i in history.ids(filters)] == sorted(expected, reverse=True)
        num_found += len(expected)
    assert num_found > 200, "the questions drawn find too little to say anything"


def _drawn(draw: random.Random) -> dict[str, Any]:
    reason = draw.choice([StopReason.EOS, StopReason.MAX_TOKENS, StopReason.CANCELLED])
    return {
        "settings": Settings(
            seed=draw.randrange(3), temperature=draw.choice([0.5, 1.0]), top_p=draw.choice([0.5, 0.9, 1.0])
        ),
        "prompt": " ".join(draw.sample(WORDS, 2)),
        "tags": draw.choice([[], ["t"]]),
        "status": reason.status.value,
        "stop_reason": reason.value,
        "is_starred": draw.random() < 0.3,
        "num_tokens": draw.randrange(4),
        "mean_logprob": draw.choice([None, -0.5, -1.0]),
        "tokens_per_s": draw.choice([None, 20.0]),
        "mean_entropy": draw.choice([1.0, 2.0]),
        "is_deleted": draw.random() < 0.1,
    }


Fits = Callable[[int, dict[str, Any]], bool]


def _asked(draw: random.Random) -> tuple[RunFilter, Fits]:
    """Up to three filters, and the same in plain Python."""
    low, day, number = draw.choice([0.5, 0.9]), draw.randrange(60), draw.randrange(3)
    every: dict[str, tuple[Any, Fits]] = {
        "text": ("par*", lambda _, row: "par" in row["prompt"]),
        "tag": ("t", lambda _, row: row["tags"] == ["t"]),
        "stop_reason": (StopReason.EOS, lambda _, row: row["stop_reason"] == "eos"),
        "status": (Status.FINISHED, lambda _, row: row["status"] == "finished"),
        "is_starred": (True, lambda _, row: row["is_starred"]),
        "max_tokens": (number, lambda _, row: row["num_tokens"] <= number),
        "min_temperature": (0.6, lambda _, row: row["settings"].temperature >= 0.6),
        "settings": ({"top_p": Bounds(low)}, lambda _, row: row["settings"].top_p >= low),
        "seed": (number, lambda _, row: row["settings"].seed == number),
        "until": (START + timedelta(seconds=day), lambda i, _: i < day),
    }
    names = draw.sample(list(every), draw.randrange(4))
    chosen = {name: every[name] for name in names}
    filters = RunFilter(**{name: value for name, (value, _) in chosen.items()})
    return filters, lambda i, row: all(fits(i, row) for _, fits in chosen.values())


def _in_order(numbers: list[int], rows: list[dict[str, Any]], sort: Sort) -> list[int]:
    """By value, equal ones by number in the same direction; those without a value last, the newest first."""
    columns = {
        SortKey.TOKENS: "num_tokens",
        SortKey.SPEED: "tokens_per_s",
        SortKey.LOGPROB: "mean_logprob",
        SortKey.ENTROPY: "mean_entropy",
    }
    if sort.key is SortKey.TIME:
        return sorted(numbers, reverse=not sort.is_ascending)
    value = {i: rows[i][columns[sort.key]] for i in numbers}
    with_value = [i for i in numbers if value[i] is not None]
    ordered = sorted(with_value, key=lambda i: (value[i], i), reverse=not sort.is_ascending)
    return ordered + sorted((i for i in numbers if value[i] is None), reverse=True)
