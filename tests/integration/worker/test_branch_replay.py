"""A branch that is taken up again: replayed through the page's handler, looked back at, carried to another database."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.branching import Fork
from app.examine import Examiner
from app.follow import Follower
from app.handlers.examine import ExamineHandlers
from app.history import History
from app.parts import Parts
from app.record import RunDetail
from app.run_export import json_line
from app.run_import import run_import
from app.serving import Serving
from app.settings import AppSettings
from app.submit import Submitter
from models.db.session import Database
from models.sampling import Settings
from tests.fakes import checkpoints
from tests.fakes.services import migrate
from tests.fakes.stack import Stack
from tests.fakes.worker import WorkerProcess
from workers.engine.cache_check import check_cache
from workers.engine.coverage import coverage
from workers.engine.influence import influence
from workers.engine.what_if import what_if

SETTINGS = Settings(temperature=1.3, top_p=0.9, repetition_penalty=1.2, max_tokens=24, seed=11, ignore_eos=True)


@dataclass
class Page:
    """The page's side of a stack with one real worker, and a branch that has ended."""

    stack: Stack
    parts: Parts
    history: History
    submitter: Submitter
    folder: Path
    branch: RunDetail

    def replay(self) -> dict[str, Any]:
        """What the fold shows at the end."""

        async def answers() -> list[dict[str, Any]]:
            handlers = ExamineHandlers(self.parts)
            asked: Any = SimpleNamespace(run=self.branch.id, serial=1)
            async with asyncio.timeout(60), aclosing(handlers.replay(asked)) as found:
                return [shown async for shown in found]

        return asyncio.run(answers())[-1]


@pytest.fixture
def page(lite_stack: Stack, tmp_path: Path) -> Iterator[Page]:
    folder = checkpoints.write_llama(tmp_path / "tiny")
    url = lite_stack.database.url.render_as_string(hide_password=False)
    redis_url = lite_stack.valkey.url
    settings = AppSettings(data=tmp_path, redis_url=redis_url, database_url=url, checkpoints="tiny=folder")
    serving, history = Serving(redis_url), History(lite_stack.database)
    submitter = Submitter(lite_stack.database, redis_url, serving, settings)
    examiner = Examiner(lite_stack.database, redis_url, serving)
    parts = Parts(
        serving,
        submitter,
        Follower(lite_stack.database, redis_url),
        history,
        None,
        examiner,  # type: ignore[arg-type]
    )
    worker = WorkerProcess(lite_stack.valkey, url, folder=folder, log=tmp_path / "worker.log").start()
    try:
        parent_id = submitter.submit("the quick brown", SETTINGS, checkpoint="tiny")
        lite_stack.wait_ended(parent_id)
        parent = history.run(parent_id)
        other = next(c.token_id for c in parent.tokens[6].candidates if c.token_id != parent.tokens[6].token_id)
        branch_id = submitter.branch(parent, Fork(6, token_id=other))
        lite_stack.wait_ended(branch_id)
        yield Page(lite_stack, parts, history, submitter, folder, history.run(branch_id))
    finally:
        worker.kill()
        for part in (submitter, examiner, serving):
            part.close()


def fresh_of(page: Page, shown: dict[str, Any]) -> RunDetail:
    """The run that the verdict links to."""
    (fresh,) = [r.id for r in page.history.family(page.branch.id) if f"?run={r.id}" in shown["html"]]
    return page.history.run(fresh)


def test_the_replay_of_a_branch_is_the_branch(page: Page) -> None:
    branch = page.branch
    shown = page.replay()
    assert not shown["busy"]
    assert 'data-verdict="same"' in shown["html"]
    assert "equal to the last digit" in shown["html"]
    fresh = fresh_of(page, shown)
    assert fresh.id != branch.id
    assert [t.token_id for t in fresh.tokens] == [t.token_id for t in branch.tokens]
    assert fresh.opening_ids == branch.opening_ids == tuple(t.token_id for t in branch.tokens[:7])
    assert (fresh.parent_id, fresh.fork_position) == (branch.parent_id, 6)
    page.stack.check(fresh.id)


def test_a_branch_is_replayed_after_its_parent_was_deleted(page: Page) -> None:
    assert page.branch.parent_id is not None
    page.history.delete(page.branch.parent_id)
    shown = page.replay()
    assert 'data-verdict="same"' in shown["html"]


def test_a_branch_that_was_imported_elsewhere_is_the_same_run(page: Page, tmp_path: Path) -> None:
    assert page.branch.parent_id is not None
    lines = [json_line(page.stack.database, run_id) for run_id in (page.branch.id, page.branch.parent_id)]
    url = f"sqlite:///{tmp_path / 'elsewhere.sqlite3'}"
    migrate(url)
    elsewhere = Database(url)
    try:
        assert run_import(elsewhere, lines, is_preview=False).num_new == 2
        assert [json_line(elsewhere, run_id) for run_id in (page.branch.id, page.branch.parent_id)] == lines
        moved = History(elsewhere).run(page.branch.id)
    finally:
        elsewhere.close()
    # From the record that was carried over, nothing else: the row here is deleted first.
    page.history.delete(page.branch.id)
    again_id = page.submitter.again(moved)
    page.stack.wait_ended(again_id)
    assert [t.token_id for t in page.history.run(again_id).tokens] == [t.token_id for t in moved.tokens]


def test_what_looks_back_at_a_branch_knows_what_it_was_given(page: Page) -> None:
    run_id, branch = page.branch.id, page.branch
    others = SETTINGS.with_changes(temperature=0.7, top_k=5)

    async def answers() -> list[Any]:
        examiner = page.parts.examiner
        async with asyncio.timeout(60):
            return [
                await examiner.influence(run_id),
                await examiner.what_if(run_id, others),
                await examiner.what_if(run_id, SETTINGS),
                await examiner.coverage(run_id),
                await examiner.check_cache(run_id),
            ]

    told = asyncio.run(answers())
    checkpoint = checkpoints.load(page.folder)
    assert branch.started is not None
    known = (checkpoint, branch.started.prompt_token_ids, [t.token_id for t in branch.tokens])
    opening = branch.opening_ids
    assert told == [
        influence(*known, SETTINGS, num_given=7),
        what_if(*known, others, opening=opening),
        what_if(*known, SETTINGS, opening=opening),
        coverage(*known, SETTINGS),
        check_cache(*known, SETTINGS, num_given=7),
    ]
    assert told[1].first_difference is None or told[1].first_difference.position >= 7
    assert told[2].first_difference is None, "under its own settings a fresh branch is the branch"
    assert what_if(*known, SETTINGS).first_difference is not None, "and a run without its opening is not"
