"""A branch through the door: what its row holds, what is refused, and the tree that it makes."""

from dataclasses import replace
from typing import Any

import pytest

from app.branching import Fork
from app.history import History
from app.record import RunDetail
from app.submit import Submitter
from models.chat import Chat
from models.db.runs import Run
from models.db.session import Database
from models.errors import NotFoundError, NoWorkerError, PromptError, RefusedError, SettingError
from models.events import Event, StopReason
from models.sampling import NEUTRAL, Settings
from tests.fakes.events import ended, history
from tests.integration.app.by_hand import Worker
from tests.integration.app.test_submit import num_runs


def told(run_id: str) -> list[Event]:
    """Three tokens, with the ids 100, 101 and 102, and the end."""
    return [*history(run_id, 3), Event(run_id, 1, 5, ended(num_tokens=3))]


def ended_run(
    submitter: Submitter, worker: Worker, past: History, *, prompt: str | Chat = "two", **settings: Any
) -> RunDetail:
    """A run of this prompt that has told three tokens, with the ids 100, 101 and 102."""
    run_id = submitter.submit(prompt, Settings(seed=5, max_tokens=8).with_changes(**settings))
    worker.save(run_id, told(run_id))
    worker.redis.delete("generate.tiny")
    return past.run(run_id)


@pytest.fixture
def parent(submitter: Submitter, worker: Worker, history: History) -> RunDetail:
    worker.appear()
    return ended_run(submitter, worker, history, temperature=0.5)


def test_a_branch_has_its_parents_past_and_randomness(
    submitter: Submitter, worker: Worker, history: History, database: Database, parent: RunDetail
) -> None:
    run_id = submitter.branch(parent, Fork(2, token_id=33), max_tokens=9)
    child = history.run(run_id)
    assert (child.parent_id, child.fork_position, child.opening_ids) == (parent.id, 2, (100, 101, 33))
    assert child.settings == parent.settings.with_changes(max_tokens=9)
    assert (child.prompt, child.checkpoint) == (parent.prompt, parent.checkpoint)
    assert parent.started is not None
    with database.read() as session:
        assert session.get_one(Run, run_id).prompt_token_ids == list(parent.started.prompt_token_ids)
    assert worker.queued_ids()[-1] == run_id


def test_a_typed_text_becomes_tokens_and_its_special_tokens_are_text(
    submitter: Submitter, history: History, parent: RunDetail
) -> None:
    child = history.run(submitter.branch(parent, Fork(1, text="<s>")))
    assert child.opening_ids[0] == 100
    assert len(child.opening_ids) == 1 + 3  # a byte a token, no special one
    assert 256 not in child.opening_ids


def test_a_branch_of_a_chat_is_one(submitter: Submitter, worker: Worker, history: History) -> None:
    worker.appear(has_chat_template=True)
    parent = ended_run(submitter, worker, history, prompt=Chat.said("hi"))
    child = history.run(submitter.branch(parent, Fork(0, token_id=7)))
    assert (child.messages, child.prompt) == (parent.messages, "hi")


@pytest.mark.parametrize(
    ("fork", "max_tokens", "error", "words"),
    [
        (Fork(3, token_id=1), None, RefusedError, "no token 3"),
        (Fork(-1, token_id=1), None, RefusedError, "no token -1"),
        (Fork(0, token_id=258), None, PromptError, "ids go from 0 to 257"),
        (Fork(0, token_id=-1), None, PromptError, "ids go from 0 to 257"),
        (Fork(0), None, PromptError, "Type the text"),
        (Fork(0, text="\ud800"), None, PromptError, "lone surrogate"),
        (Fork(0, text="x" * 7), 7, SettingError, "at least 8"),
        (Fork(0, text="x" * 14), 99, PromptError, "branch earlier"),
    ],
)
def test_what_cannot_be_put_there_is_refused(
    submitter: Submitter,
    database: Database,
    parent: RunDetail,
    fork: Fork,
    max_tokens: int | None,
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        submitter.branch(parent, fork, max_tokens=max_tokens)
    assert num_runs(database) == 1


def test_scores_beams_and_unserved_checkpoints_have_no_branches(
    submitter: Submitter, worker: Worker, history: History, parent: RunDetail
) -> None:
    scored = history.run(submitter.submit("two", NEUTRAL, given_text=" words"))
    with pytest.raises(RefusedError, match="scored text"):
        submitter.branch(scored, Fork(0, token_id=1))
    searched = ended_run(submitter, worker, history, num_beams=2)
    with pytest.raises(RefusedError, match="beam search"):
        submitter.branch(searched, Fork(0, token_id=1))
    worker.vanish()
    worker.appear("other")
    with pytest.raises(NoWorkerError, match="tiny"):
        submitter.branch(parent, Fork(0, token_id=1))


def test_the_tree_is_the_same_from_every_run_in_it(
    submitter: Submitter, worker: Worker, history: History, parent: RunDetail
) -> None:
    first = submitter.branch(parent, Fork(1, token_id=33))
    worker.save(first, told(first))
    second = submitter.branch(parent, Fork(2, token_id=44))
    below = submitter.branch(history.run(first), Fork(2, token_id=55))
    submitter.submit("a stranger", NEUTRAL)
    tree = history.family(parent.id)
    assert [(r.id, r.parent_id, r.fork_position) for r in tree] == [
        (parent.id, None, None),
        (first, parent.id, 1),
        (second, parent.id, 2),
        (below, first, 2),
    ]
    assert [r.start for r in tree] == [" t0 t1 t2", " t1 t2", "", ""]
    assert [r.stop_reason for r in tree] == [StopReason.MAX_TOKENS, StopReason.MAX_TOKENS, None, None]
    assert history.family(below) == history.family(second) == tree
    with pytest.raises(NotFoundError):
        history.family("0" * 36)


def test_a_branch_is_made_again_by_its_own_ids(
    submitter: Submitter, worker: Worker, history: History, database: Database, parent: RunDetail
) -> None:
    child_id = submitter.branch(parent, Fork(2, token_id=33), max_tokens=9)
    worker.save(child_id, told(child_id))
    again_id = submitter.again(history.run(child_id))
    assert worker.queued_ids()[-1] == again_id != child_id
    rows = []
    for run_id in (child_id, again_id):
        with database.read() as session:
            run = session.get_one(Run, run_id)
            names = ("prompt", "messages", "prompt_token_ids", "settings", "seed", "checkpoint", "kind")
            rows.append([getattr(run, name) for name in (*names, "parent_id", "fork_position", "opening_ids")])
    assert rows[0] == rows[1]
    assert rows[1][-3:] == [parent.id, 2, [100, 101, 33]]


def test_a_branch_of_a_purged_run_is_made_again_without_it(
    submitter: Submitter, worker: Worker, history: History, parent: RunDetail
) -> None:
    child_id = submitter.branch(parent, Fork(1, token_id=33))
    worker.save(child_id, told(child_id))
    history.delete(parent.id)
    again = history.run(submitter.again(history.run(child_id)))
    assert (again.parent_id, again.fork_position, again.opening_ids) == (None, 1, (100, 33))


def test_any_other_run_is_made_again_from_what_was_said(
    submitter: Submitter, worker: Worker, history: History, parent: RunDetail
) -> None:
    again = history.run(submitter.again(parent))
    assert (again.prompt, again.settings, again.opening_ids) == (parent.prompt, parent.settings, ())
    scored = history.run(submitter.submit("two", NEUTRAL, given_text=" words"))
    assert history.run(submitter.again(scored)).given_text == " words"
    worker.appear(has_chat_template=True)
    chat = history.run(submitter.submit(Chat.said("hi"), NEUTRAL))
    assert history.run(submitter.again(chat)).messages == chat.messages


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"opening_ids": ()}, RefusedError, "were not saved"),
        ({"events": ()}, RefusedError, "branch anew"),
        ({"opening_ids": (100, 258)}, PromptError, "token id 258"),
        ({"opening_ids": (100, -1)}, PromptError, "token id -1"),
        ({"opening_ids": (100,) * 8}, SettingError, "at least 9"),
        ({"checkpoint": "other"}, NoWorkerError, "other"),
    ],
)
def test_a_branch_that_cannot_be_made_again_says_why(
    submitter: Submitter,
    worker: Worker,
    history: History,
    database: Database,
    parent: RunDetail,
    changes: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    child_id = submitter.branch(parent, Fork(1, token_id=33))
    worker.save(child_id, told(child_id))
    with pytest.raises(error, match=words):
        submitter.again(replace(history.run(child_id), **changes))
    assert num_runs(database) == 2


def test_branches_of_a_deleted_run_stay(submitter: Submitter, history: History, parent: RunDetail) -> None:
    child = submitter.branch(parent, Fork(1, token_id=33))
    history.delete(parent.id)
    assert history.run(child).opening_ids == (100, 33)
    assert [r.id for r in history.family(child)] == [child]
