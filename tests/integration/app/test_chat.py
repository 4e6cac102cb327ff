"""A chat through the door to its row; what a worker makes of it is told in the worker's and the whole stack's tests."""

import pytest

from app.history import History
from app.run_json import run_json
from app.submit import Submitter
from models.chat import Chat
from models.db.session import Database
from models.errors import ChatError, LimitError
from models.sampling import NEUTRAL
from tests.integration.app.by_hand import CONTEXT, Worker
from tests.integration.app.test_submit import num_runs

CHAT = Chat.parse(
    [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi \0<s> 😀" + "x" * CONTEXT}]
)


def test_a_chat_is_saved_as_it_is(submitter: Submitter, worker: Worker, history: History) -> None:
    worker.appear(has_chat_template=True)
    run_id = submitter.submit(CHAT, NEUTRAL)
    run = history.run(run_id)
    assert run.messages == CHAT.as_list()
    assert run.prompt == CHAT.text
    assert run_json(run)["messages"] == CHAT.as_list()
    assert worker.queued_ids() == [run_id]
    assert history.run(submitter.submit("hi", NEUTRAL)).messages is None


def test_a_chat_may_be_compared(submitter: Submitter, worker: Worker, history: History) -> None:
    worker.appear(has_chat_template=True)
    _, run_ids = submitter.submit_comparison(CHAT, [NEUTRAL, NEUTRAL])
    assert [history.run(run_id).messages for run_id in run_ids] == [CHAT.as_list()] * 2


def test_a_chat_is_refused_before_it_is_saved(submitter: Submitter, worker: Worker, database: Database) -> None:
    worker.appear()
    with pytest.raises(ChatError, match="tiny has no chat template; use a raw prompt") as refused:
        submitter.submit(CHAT, NEUTRAL)
    assert refused.value.field == "messages"
    worker.appear(has_chat_template=True)
    with pytest.raises(LimitError, match="characters"):
        submitter.submit(Chat.said("x" * 10_000_000), NEUTRAL)
    assert num_runs(database) == 0
