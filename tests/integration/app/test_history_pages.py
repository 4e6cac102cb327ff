"""Search, filters and sorts over saved runs, on both databases."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from app.history import History, RunFilter, Sort, SortKey
from models.db.experiments import Experiment
from models.db.runs import Run
from models.db.session import Database
from models.errors import NotFoundError, RefusedError
from models.events import RunKind, Status, StopReason
from models.sampling import Settings
from tests.fakes.rows import new_run

START = datetime(2026, 3, 1, tzinfo=UTC)


def run_id(number: int) -> str:
    return f"0199b0c8-0000-7000-8000-{number:012d}"


def save(database: Database, *runs: dict[str, Any]) -> list[str]:
    """Ended runs, one a second; their ids, oldest first."""
    values = [{"id": run_id(i), "created_at": START + timedelta(seconds=i), "status": "finished", **r}
              for i, r in enumerate(runs)]  # fmt: skip
    with database.write() as session:
        session.add_all(new_run(**v) for v in values)
    return [v["id"] for v in values]


@pytest.fixture
def history(database: Database) -> History:
    return History(database)


def found(history: History, **filters: Any) -> list[int]:
    """Numbers of the runs found, newest first."""
    return [int(row.id[-12:]) for row in history.page(RunFilter(**filters)).rows]


def test_words_phrases_and_beginnings(database: Database, history: History) -> None:
    save(
        database,
        {"prompt": "The capital of France is", "text": " Paris."},
        {"prompt": "PARIS, capital?", "title": "of course"},
        {"prompt": "", "text": "don't/stop_now", "note": "Übung"},
        {"prompt": "x", "given_text": "scored words", "kind": "score"},
    )
    assert found(history, text="paris") == [1, 0]
    assert found(history, text="capital PARIS") == [1, 0]
    assert found(history, text='"capital of"') == [0]
    assert found(history, text='"france is paris"') == [0], "the text goes on where the prompt ends"
    assert found(history, text="of") == [1, 0], "a title is searched too"
    assert found(history, text="fran*") == [0]
    assert found(history, text='"of fra*"') == [0]
    assert found(history, text="fran") == []
    assert found(history, text="don't") == found(history, text="stop now") == found(history, text='"t stop"') == [2]
    assert found(history, text="Übung") == [2]
    assert found(history, text="ubung") == []
    assert found(history, text="scored") == [3]
    assert found(history, text="paris xyzzy") == []


@pytest.mark.parametrize("typed", ["%", "'", "*", '"', '"" ""', "\0", "--", "();"])
def test_a_search_without_a_word_is_refused(history: History, typed: str) -> None:
    with pytest.raises(RefusedError, match="no word"):
        history.page(RunFilter(text=typed))


@pytest.mark.parametrize("typed", ["a' OR 1", "AND", "a NOT b", "NEAR(a b)", "a:b", "a&!b|c", "words:x", "^a", "a\\"])
def test_the_databases_own_operators_are_words(database: Database, history: History, typed: str) -> None:
    save(database, {"prompt": typed}, {"prompt": "none of it"})
    assert found(history, text=typed) == [0]


def test_the_index_follows_every_change(database: Database, history: History) -> None:
    (changed, _) = save(database, {"prompt": "old prompt"}, {"prompt": "other"})
    with database.write() as session:
        session.execute(update(Run).where(Run.id == changed).values(text="fresh\0 text"))
    assert found(history, text="fresh") == found(history, text="old text") == [0]
    with database.write() as session:
        session.execute(update(Run).where(Run.id == changed).values(text="later", tags=["T"]))
    assert found(history, text="fresh") == []
    assert found(history, tag="T") == found(history, text="later") == [0]
    with database.write() as session:
        session.delete(session.get_one(Run, changed))
    assert found(history, text="later") == found(history, tag="T") == []
    assert found(history, text="other") == [1]


def test_a_long_text_is_searched_and_does_no_harm(database: Database, history: History) -> None:
    words = " ".join(f"w{i}" for i in range(200_000))
    save(database, {"prompt": words}, {"prompt": "x" * 1_000_000}, {"prompt": "東京" * 3000})
    assert found(history, text="w10000") == [0]
    assert found(history, text='"w10000 w10001"') == [0]


@pytest.mark.parametrize("tag", ["a b", "A b", "é", "東京 タワー", "<b>'\"", "%"])
def test_a_tag_is_found_exactly(database: Database, history: History, tag: str) -> None:
    save(database, {"tags": [tag, "other"]}, {"tags": [tag + "x", "x" + tag]}, {"prompt": tag})
    assert found(history, tag=tag) == [0]


def test_each_filter_alone_and_some_together(database: Database, history: History) -> None:
    save(
        database,
        {"settings": Settings(seed=1, temperature=0.5), "num_tokens": 5, "stop_reason": "eos", "is_starred": True},
        {"settings": Settings(seed=1, temperature=1.5), "num_tokens": 50, "stop_reason": "max_tokens"},
        {"settings": Settings(seed=1), "num_tokens": 500, "kind": "score", "given_text": "x", "checkpoint": "other"},
        {"status": "failed", "stop_reason": "error:internal", "settings": Settings(seed=1, temperature=0.0)},
    )
    assert found(history, min_temperature=0.5, max_temperature=1.0) == [2, 0]
    assert found(history, max_temperature=0.0) == [3]
    assert found(history, min_tokens=5, max_tokens=50) == [1, 0]
    assert found(history, kind=RunKind.SCORE) == found(history, checkpoint="other") == [2]
    assert found(history, status=Status.FAILED) == found(history, stop_reason=StopReason.ERROR_INTERNAL) == [3]
    assert found(history, is_starred=True) == [0]
    assert found(history, is_starred=False) == [3, 2, 1]
    assert found(history, since=START + timedelta(seconds=1), until=START + timedelta(seconds=3)) == [2, 1]
    assert found(history, stop_reason=StopReason.EOS, is_starred=True, text="tell", max_tokens=5) == [0]
    assert found(history, stop_reason=StopReason.EOS, is_starred=False) == []


VALUES: list[float | None] = [-0.5, None, -0.25, -0.5, None, -3.0, -0.5, 1 / 3, None, -0.5, -1e-9]


def in_order(sort: Sort) -> list[int]:
    """The law, in plain Python: by value, equal ones by id in the same direction; none last, the newest first."""
    numbers = range(len(VALUES))
    with_value = sorted(
        (i for i in numbers if VALUES[i] is not None), key=lambda i: (VALUES[i], i), reverse=not sort.is_ascending
    )
    return with_value + sorted((i for i in numbers if VALUES[i] is None), reverse=True)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 11])
@pytest.mark.parametrize("is_ascending", [False, True])
@pytest.mark.parametrize(
    ("key", "column"),
    [(SortKey.LOGPROB, "mean_logprob"), (SortKey.SPEED, "tokens_per_s"), (SortKey.ENTROPY, "mean_entropy")],
)
def test_pages_follow_each_other_under_equal_values_and_none(
    database: Database, history: History, key: SortKey, column: str, is_ascending: bool, limit: int
) -> None:
    save(database, *({column: value} for value in VALUES))
    sort = Sort(key, is_ascending)
    assert numbers_by_page(history, sort, limit) == in_order(sort)


@pytest.mark.parametrize("is_ascending", [False, True])
def test_time_and_tokens_sort_too(database: Database, history: History, is_ascending: bool) -> None:
    save(database, *({"num_tokens": n} for n in (3, 1, 3, 2)))
    down = {SortKey.TIME: [3, 2, 1, 0], SortKey.TOKENS: [2, 0, 3, 1]}
    for key, expected in down.items():
        numbers = numbers_by_page(history, Sort(key, is_ascending), 1)
        assert numbers == (expected[::-1] if is_ascending else expected)


def numbers_by_page(history: History, sort: Sort, limit: int) -> list[int]:
    numbers: list[int] = []
    before: str | None = None
    while True:
        page = history.page(RunFilter(), sort=sort, before=before, limit=limit)
        assert 0 < len(page.rows) <= limit
        numbers += [int(row.id[-12:]) for row in page.rows]
        before = page.next
        if before is None:
            return numbers


@pytest.mark.parametrize("before", ["", "x", "~", f"{run_id(1)}~x", "\0", f"~{run_id(1)}"])
def test_a_place_that_is_none_is_refused(history: History, before: str) -> None:
    with pytest.raises(NotFoundError):
        history.page(RunFilter(), sort=Sort(SortKey.TOKENS), before=before)


def test_one_run_stands_for_its_comparison(database: Database, history: History) -> None:
    experiment = "0199b0c8-0000-7000-8000-00000000000e"
    with database.write() as session:
        session.add(Experiment(id=experiment, created_at=START, checkpoint="c", prompt="p", num_arms=3, title="E"))
    arm = {"experiment_id": experiment, "sample_index": 0}
    ids = save(database, {}, *({**arm, "arm_index": i} for i in range(3)), {})
    page = history.page(RunFilter(), is_grouped=True)
    assert [row.id for row in page.rows] == [ids[4], ids[3], ids[0]]
    assert [(c.title, c.num_arms, c.num_runs) for c in page.comparisons.values()] == [("E", 3, 3)]
    assert [row.id for row in history.arms(experiment).rows] == ids[1:4]
    history.discard([ids[3]])
    page = history.page(RunFilter(), is_grouped=True)
    assert [row.id for row in page.rows] == [ids[4], ids[2], ids[0]]
    assert page.comparisons[experiment].num_runs == 2
