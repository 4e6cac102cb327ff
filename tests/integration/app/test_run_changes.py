"""What a person does to saved runs, on both databases."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import func, select, update

from app.follow import read_saved
from app.history import History, RunFilter
from app.run_changes import MAX_CHOSEN, MAX_TAGS
from models.db.experiments import Experiment
from models.db.ledger import token_row
from models.db.runs import Run, Token
from models.db.session import Database
from models.errors import LimitError, NotFoundError, RefusedError
from tests.fakes.events import token_event
from tests.fakes.rows import new_run

EXPERIMENT = "0199b0c8-0000-7000-8000-00000000000e"


@pytest.fixture
def history(database: Database) -> History:
    return History(database)


def save(database: Database, number: int, **columns: object) -> list[str]:
    runs = [new_run(**{"status": "finished", **columns}) for _ in range(number)]
    with database.write() as session:
        session.add_all(runs)
        session.flush()
        session.add_all(Token(**token_row(token_event(run.id, 2))) for run in runs)
    return [run.id for run in runs]


def experiment(database: Database) -> None:
    with database.write() as session:
        now = datetime.now(UTC)
        session.add(Experiment(id=EXPERIMENT, created_at=now, checkpoint="c", prompt="p", num_arms=2))


def num_rows(database: Database, table: type[Run] | type[Token] | type[Experiment]) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_stars_and_tags_of_several(database: Database, history: History) -> None:
    first, second, other = save(database, 3)
    history.star([first, second], is_starred=True)
    history.star([second], is_starred=False)
    history.add_tag([first, second], "  two   words ")
    history.add_tag([first], "b")
    history.add_tag([first], "b")
    history.remove_tag([second], "two words")
    lines = {row.id: (row.is_starred, row.tags) for row in history.page(RunFilter()).rows}
    assert lines == {first: (True, ("two words", "b")), second: (False, ()), other: (False, ())}


def test_a_comparison_goes_with_the_last_of_its_runs_and_comes_back_with_them(
    database: Database, history: History
) -> None:
    experiment(database)
    arms = save(database, 2, experiment_id=EXPERIMENT)
    assert history.discard([arms[0]]).experiment_ids == ()
    assert len(history.experiment(EXPERIMENT).arms) == 1
    gone = history.discard([arms[1]])
    assert gone.experiment_ids == (EXPERIMENT,)
    with pytest.raises(NotFoundError):
        history.experiment(EXPERIMENT)
    history.restore(gone.run_ids, gone.experiment_ids)
    assert [run.id for run in history.experiment(EXPERIMENT).arms] == [arms[1]]
    history.delete(arms[1])  # for good, as a command does
    with pytest.raises(NotFoundError):
        history.experiment(EXPERIMENT)


def test_the_star_of_a_comparison_is_its_own_and_is_found_with_those_of_runs(
    database: Database, history: History
) -> None:
    experiment(database)
    arms = save(database, 3, experiment_id=EXPERIMENT)
    alone, _ = save(database, 2)
    starred = RunFilter(is_starred=True)
    history.star([arms[0], alone], is_starred=True)
    assert not history.comparison(EXPERIMENT).is_starred
    for is_grouped in (False, True):  # the comparison has no star, so its starred arm is alone
        assert [row.id for row in history.page(starred, is_grouped=is_grouped).rows] == [alone, arms[0]]
    history.star([], [EXPERIMENT], is_starred=True)
    assert history.comparison(EXPERIMENT).is_starred
    assert [row.is_starred for row in history.arms(EXPERIMENT).rows] == [True, False, False]
    assert [row.id for row in history.page(starred).rows] == [alone, *reversed(arms)]
    assert list(history.ids(starred)) == [alone, *reversed(arms)]
    assert [row.id for row in history.page(starred, is_grouped=True).rows] == [alone, arms[2]]
    history.star([arms[0]], [EXPERIMENT], is_starred=False)
    assert [row.id for row in history.page(starred).rows] == [alone]


def test_a_comparison_without_runs_is_none(database: Database, history: History) -> None:
    experiment(database)
    for missing in (EXPERIMENT, "no id"):
        with pytest.raises(NotFoundError):
            history.comparison(missing)


@pytest.mark.parametrize("tag", ["", " ", "a,b", "x" * 41, "\0", "\ud800"])
def test_what_is_no_tag(database: Database, history: History, tag: str) -> None:
    (run_id,) = save(database, 1)
    with pytest.raises(RefusedError, match="A tag has 1 to 40 characters"):
        history.add_tag([run_id], tag)


def test_a_run_has_so_many_tags_and_no_more(database: Database, history: History) -> None:
    full, empty = save(database, 2)
    for i in range(MAX_TAGS):
        history.add_tag([full], str(i))
    with pytest.raises(LimitError, match="at most 16 tags; these would be 17"):
        history.add_tag([empty, full], "one more")
    assert history.run(empty).tags == (), "nothing is changed"


def test_title_note_and_tags_at_once(database: Database, history: History) -> None:
    (run_id,) = save(database, 1)
    history.describe(run_id, of="run", title=" a title ", note="a note", tags=["x", "y", "x"])
    run = history.run(run_id)
    assert (run.title, run.note, run.tags) == ("a title", "a note", ("x", "y"))
    history.describe(run_id, of="run", title="", note=" ", tags=[])
    run = history.run(run_id)
    assert (run.title, run.note, run.tags) == (None, None, ())
    with pytest.raises(RefusedError, match="title is text of at most 200"):
        history.describe(run_id, of="run", title="x" * 201, note="")
    with pytest.raises(NotFoundError):
        history.describe(EXPERIMENT, of="comparison", title="x", note="")
    experiment(database)
    save(database, 1, experiment_id=EXPERIMENT)
    history.describe(EXPERIMENT, of="comparison", title="x", note="why")
    history.describe(EXPERIMENT, of="comparison", title="y")
    found = history.experiment(EXPERIMENT)
    assert (found.title, found.note) == ("y", "why")


def test_a_deleted_run_is_nowhere_until_it_is_restored(database: Database, history: History) -> None:
    kept, gone = save(database, 2)
    discarded = history.discard([gone])
    assert (discarded.run_ids, discarded.experiment_ids, discarded.num_active) == ((gone,), (), 0)
    assert [row.id for row in history.page(RunFilter()).rows] == list(history.ids(RunFilter())) == [kept]
    assert history.page(RunFilter(text="tell")).rows[0].id == kept
    assert [row.id for row in history.lines([kept, gone]).rows] == [kept]
    for look in (history.run, history.delete, lambda i: read_saved(database, i, 0)):
        with pytest.raises(NotFoundError):
            look(gone)
    history.star([gone], is_starred=True)
    assert history.restore(discarded.run_ids) == 1
    assert not history.run(gone).is_starred
    assert [row.id for row in history.page(RunFilter()).rows] == [gone, kept]
    assert num_rows(database, Token) == 2


def test_a_comparison_goes_and_comes_with_its_runs(database: Database, history: History) -> None:
    experiment(database)
    arms = save(database, 2, experiment_id=EXPERIMENT)
    discarded = history.discard([], [EXPERIMENT])
    assert (set(discarded.run_ids), discarded.experiment_ids) == (set(arms), (EXPERIMENT,))
    with pytest.raises(NotFoundError):
        history.experiment(EXPERIMENT)
    assert history.arms(EXPERIMENT).rows == []
    assert history.restore(discarded.run_ids, discarded.experiment_ids) == 2
    assert len(history.experiment(EXPERIMENT).arms) == 2
    history.discard([arms[0]])
    assert [arm.id for arm in history.experiment(EXPERIMENT).arms] == [arms[1]]


def test_what_goes_on_is_kept_and_its_comparison_too(database: Database, history: History) -> None:
    experiment(database)
    (ended,) = save(database, 1, experiment_id=EXPERIMENT)
    (running,) = save(database, 1, experiment_id=EXPERIMENT, status="running")
    discarded = history.discard([], [EXPERIMENT])
    assert (discarded.run_ids, discarded.experiment_ids, discarded.num_active) == ((ended,), (), 1)
    assert [arm.id for arm in history.experiment(EXPERIMENT).arms] == [running]


def test_the_purge_takes_what_was_deleted_a_minute_ago(database: Database, history: History) -> None:
    experiment(database)
    arms = save(database, 2, experiment_id=EXPERIMENT)
    recent, kept, child = save(database, 3)
    history.discard([], [EXPERIMENT])
    with database.write() as session:
        long_ago = datetime(2020, 1, 1, tzinfo=UTC)
        session.execute(update(Run).where(Run.deleted_at.is_not(None)).values(deleted_at=long_ago))
        session.execute(update(Experiment).values(deleted_at=long_ago))
        session.execute(update(Run).where(Run.id == child).values(parent_id=arms[0]))
    history.discard([recent])
    assert history.purge() == 2
    assert history.purge() == 0
    assert history.restore([*arms, recent]) == 1
    assert {row.id for row in history.page(RunFilter()).rows} == {recent, kept, child}
    assert history.run(child).parent_id is None
    assert (num_rows(database, Token), num_rows(database, Experiment)) == (3, 0)


def test_ids_are_checked_and_bounded(history: History) -> None:
    with pytest.raises(NotFoundError):
        history.star(["no-id"], is_starred=True)
    with pytest.raises(NotFoundError):
        history.discard([], ["'; DROP TABLE runs"])
    with pytest.raises(LimitError, match="501 are chosen"):
        history.discard([EXPERIMENT] * (MAX_CHOSEN + 1))
