"""Saved runs, read back: pages, filters, whole runs, deletion."""

import json

import pytest
from sqlalchemy import func, select, update

from app.history import History, RunFilter
from app.run_json import run_json
from app.submit import Submitter
from models.db.runs import Run, Token
from models.db.session import Database
from models.errors import DecodeLabError, NotFoundError, RefusedError
from models.events import Status, StopReason
from models.sampling import NEUTRAL, Settings
from tests.integration.app.by_hand import Worker
from tests.unit.app.runs import events, token


@pytest.fixture(autouse=True)
def _served(worker: Worker) -> None:
    worker.appear()


def ids(history: History, **filters: object) -> list[str]:
    return [row.id for row in history.page(RunFilter(**filters)).rows]  # type: ignore[arg-type]


def finish(worker: Worker, run_id: str, text: str = "words", reason: StopReason = StopReason.EOS) -> None:
    worker.save(run_id, events(run_id, [token(0, 1, text=text)], reason))


def test_pages_are_newest_first_and_whole(submitter: Submitter, history: History) -> None:
    made = [submitter.submit(f"p{i}", Settings(seed=i)) for i in range(7)]
    seen, before = [], None
    while True:
        page = history.page(RunFilter(), before=before, limit=3)
        seen.append([row.id for row in page.rows])
        before = page.next
        if before is None:
            break
    newest_first = made[::-1]
    assert seen == [newest_first[:3], newest_first[3:6], newest_first[6:]]
    assert list(history.ids(RunFilter())) == newest_first


def test_a_page_that_is_exactly_full_is_the_last(submitter: Submitter, history: History) -> None:
    for _ in range(3):
        submitter.submit("x", NEUTRAL)
    assert history.page(RunFilter(), limit=3).next is None
    assert history.page(RunFilter(), limit=2).next is not None


def test_a_line_has_the_facts_of_its_run(submitter: Submitter, worker: Worker, history: History) -> None:
    run_id = submitter.submit("two words", Settings(temperature=0.5, seed=9))
    finish(worker, run_id, " and more")
    (row,) = history.page(RunFilter()).rows
    assert (row.id, row.prompt_start, row.text_start) == (run_id, "two words", " and more")
    assert (row.changed, row.seed) == ({"temperature": 0.5}, 9)
    assert (row.status, row.stop_reason, row.num_tokens) == (Status.FINISHED, StopReason.EOS, 1)


def test_text_is_found_in_prompt_and_text_whatever_its_case(
    submitter: Submitter, worker: Worker, history: History
) -> None:
    in_prompt = submitter.submit("Paris", NEUTRAL)
    in_text = submitter.submit("x", NEUTRAL)
    finish(worker, in_text, " near PARIS.")
    submitter.submit("London", NEUTRAL)
    assert ids(history, text="paris") == [in_text, in_prompt]
    assert ids(history, text="paris.") == [in_text, in_prompt]
    assert ids(history, text="aris") == []


def test_filters_combine(submitter: Submitter, worker: Worker, history: History, database: Database) -> None:
    first = submitter.submit("one", NEUTRAL)
    second = submitter.submit("one two", NEUTRAL)
    finish(worker, first)
    finish(worker, second, reason=StopReason.MAX_TOKENS)
    waiting = submitter.submit("one", NEUTRAL)
    with database.write() as session:
        session.execute(update(Run).where(Run.id == second).values(is_starred=True))
    assert ids(history, text="one", stop_reason=StopReason.EOS) == [first]
    assert ids(history, status=Status.QUEUED) == [waiting]
    assert ids(history, status=Status.FINISHED, text="two") == [second]
    assert ids(history, is_starred=True) == [second]
    assert ids(history, is_starred=False) == [waiting, first]
    assert ids(history, checkpoint="tiny") == [waiting, second, first]
    assert ids(history, checkpoint="other") == []


@pytest.mark.parametrize("length", range(156, 166))
def test_heads_that_cut_an_escape_are_still_text(submitter: Submitter, history: History, length: int) -> None:
    """A NUL is stored as two characters, so a head may end inside one."""
    prompt = "\0" + "a" * (length - 1) + "\0" * 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.submit.check_prompt", lambda *_: None)  # the prompt is longer than this context
        submitter.submit(prompt, NEUTRAL)
    (row,) = history.page(RunFilter()).rows
    assert prompt.startswith(row.prompt_start)
    assert len(row.prompt_start) >= 150


def test_a_run_reads_back_as_it_was_told(submitter: Submitter, worker: Worker, history: History) -> None:
    run_id = submitter.submit("two", NEUTRAL)
    told = events(run_id, [token(0, 1, text=" a"), token(1, 2, text="\0b", raw_logprob=-12.345678)])
    worker.save(run_id, told)
    run = history.run(run_id)
    assert list(run.events) == told
    assert run.text == " a\0b"
    assert run.tokens == tuple(e.payload for e in told[2:4])
    assert run.ended == told[-1].payload
    json.dumps(run_json(run), allow_nan=False)


def test_a_running_run_shows_what_is_saved_so_far(submitter: Submitter, worker: Worker, history: History) -> None:
    run_id = submitter.submit("two", NEUTRAL)
    worker.save(run_id, events(run_id, [token(0, 1, text=" a"), token(1, 2, text=" b")])[:3])
    run = history.run(run_id)
    assert (run.status, run.text, run.ended, run.stop) == (Status.RUNNING, " a", None, None)


def test_settings_of_a_newer_version_are_read(submitter: Submitter, history: History, database: Database) -> None:
    run_id = submitter.submit("two", Settings(top_p=0.5, seed=3))
    with database.write() as session:
        run = session.get_one(Run, run_id)
        run.settings = {**run.settings, "future_control": 1}
    assert history.run(run_id).settings == Settings(top_p=0.5, seed=3)
    assert history.page(RunFilter()).rows[0].changed == {"top_p": 0.5}


def test_deletion_takes_the_tokens_along(
    submitter: Submitter, worker: Worker, history: History, database: Database
) -> None:
    run_id = submitter.submit("two", NEUTRAL)
    with pytest.raises(RefusedError, match="queued; stop it first"):
        history.delete(run_id)
    finish(worker, run_id)
    history.delete(run_id)
    with pytest.raises(NotFoundError):
        history.run(run_id)
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Token)) == 0


@pytest.mark.parametrize("method", ["run", "experiment", "delete"])
def test_what_is_not_there(history: History, method: str) -> None:
    with pytest.raises(NotFoundError, match="no-such-id"):
        getattr(history, method)("no-such-id")


def test_settings_that_this_version_refuses_do_not_close_the_history(
    submitter: Submitter, history: History, database: Database
) -> None:
    run_id = submitter.submit("x", Settings(temperature=0.5, top_k=4))
    with database.write() as session:
        run = session.get_one(Run, run_id)
        run.settings = run.settings | {"top_k": 2**80, "temperature": "hot", "of_tomorrow": 1}
    other = submitter.submit("y", NEUTRAL)
    assert ids(history) == [other, run_id]
    assert history.run(run_id).settings.changed() == {}


@pytest.mark.parametrize("milestones", [[{"type": "nonsense"}], {"a": 1}, ["x"]])
def test_damaged_events_are_told_in_a_sentence(
    submitter: Submitter, history: History, database: Database, milestones: object
) -> None:
    run_id = submitter.submit("x", NEUTRAL)
    with database.write() as session:
        session.execute(update(Run).where(Run.id == run_id).values(milestones=milestones))
    with pytest.raises(DecodeLabError, match="damaged"):
        history.run(run_id)
    assert ids(history) == [run_id]
