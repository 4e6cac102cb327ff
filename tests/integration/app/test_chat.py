"""A chat through the door to its row, or refused with its template's words; the whole stack's tests tell the rest."""

import re
from collections.abc import Callable

import pytest

from app import chat_rendering
from app.history import History
from app.run_json import run_json
from app.submit import Submitter
from models.chat import Chat
from models.db.session import Database
from models.errors import ChatError, LimitError, PromptError
from models.sampling import NEUTRAL, Settings
from tests.fakes.chats import GEMMA, LLAMA_2
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


EACH = "{% for m in messages %}<s>{{ m.content }}{% endfor %}"  # a token more than the characters of each message
WAYS: dict[str, Callable[[Submitter, Chat], object]] = {
    "run": lambda door, chat: door.submit(chat, NEUTRAL),
    "prefill": lambda door, chat: door.submit(chat, Settings(max_tokens=0)),
    "comparison": lambda door, chat: door.submit_comparison(chat, [NEUTRAL, Settings(parse_special=True)]),
    "score": lambda door, chat: door.submit(chat, NEUTRAL, given_text="x"),
}


def chat(*turns: str) -> Chat:
    """Each the first letter of its role, and its content."""
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return Chat.parse([{"role": roles[turn[0]], "content": turn[1:]} for turn in turns])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("template", "said", "words"),
    [
        (None, chat("uhi"), "tiny has no chat template; use a raw prompt"),
        ("a\n{% for %}", chat("uhi"), "the chat template of tiny has a fault in line 2: Expected"),
        (GEMMA, chat("sBe kind.", "uhi"), "tiny does not take this chat: System role not supported"),
        (LLAMA_2, chat("uhi", "uhi"), "tiny does not take this chat: Roles must alternate user/assistant/"),
        ("{{ nothing.at.all }}", chat("uhi"), "tiny does not take this chat: 'nothing' is undefined"),
        ("{{ 1 + messages[0].content }}", chat("uhi"), "the chat template of tiny failed: unsupported operand"),
    ],
)
def test_what_a_template_does_not_take_is_refused_with_its_words(
    submitter: Submitter, worker: Worker, database: Database, way: str, template: str | None, said: Chat, words: str
) -> None:
    """Field fault 17."""
    worker.appear(chat_template=template)
    with pytest.raises(ChatError, match=re.escape(words)) as refused:
        WAYS[way](submitter, said)
    assert (refused.value.code, refused.value.field) == ("invalid_chat", "messages")
    assert num_runs(database) == 0
    assert worker.queued_ids() == []
    assert submitter.submit("hi", NEUTRAL)  # a raw prompt works all the same


@pytest.mark.parametrize("way", WAYS)
def test_a_chat_at_the_edge_of_the_context(submitter: Submitter, worker: Worker, database: Database, way: str) -> None:
    worker.appear(chat_template=EACH)
    limit = CONTEXT if way == "prefill" else CONTEXT - 1
    WAYS[way](submitter, chat("u" + "x" * (limit - 3), "a"))
    saved = num_runs(database)
    with pytest.raises(PromptError, match=f"has {limit + 1} tokens.* holds {CONTEXT}.*at most {limit} ") as refused:
        WAYS[way](submitter, chat("u" + "x" * (limit - 2), "a", "u"))
    assert (refused.value.code, refused.value.field) == ("invalid_prompt", "messages")
    assert num_runs(database) == saved


def test_a_text_has_room_after_its_chat(submitter: Submitter, worker: Worker, database: Database) -> None:
    worker.appear(chat_template=EACH)
    submitter.submit(chat("uhi"), NEUTRAL, given_text="x" * (CONTEXT - 3))
    with pytest.raises(PromptError, match=f"The prompt has 3 tokens, the text {CONTEXT - 2}") as refused:
        submitter.submit(chat("uhi"), NEUTRAL, given_text="x" * (CONTEXT - 2))
    assert refused.value.field == "text"
    assert num_runs(database) == 1


def test_a_chat_that_becomes_no_token_is_refused(submitter: Submitter, worker: Worker, database: Database) -> None:
    worker.appear(chat_template="{{ messages[0].content | trim }}")
    with pytest.raises(PromptError, match="no token at all in tiny"):
        submitter.submit(chat("u "), NEUTRAL)
    assert num_runs(database) == 0


@pytest.mark.parametrize("spelled", ["u<s>" + "x" * CONTEXT, "u" + "x" * CONTEXT + "</"])
def test_the_length_of_a_chat_that_spells_a_control_token_is_left_to_the_worker(
    submitter: Submitter, worker: Worker, spelled: str
) -> None:
    worker.appear(chat_template="{% for m in messages %}<s>{{ m.content }}s>{% endfor %}")
    run_id = submitter.submit(chat(spelled), NEUTRAL)
    assert worker.queued_ids() == [run_id]
    with pytest.raises(PromptError, match="shorten the chat"):
        submitter.submit(chat("u" + "x" * CONTEXT), NEUTRAL)


def test_a_template_that_wants_more_than_letters_is_left_to_the_worker(submitter: Submitter, worker: Worker) -> None:
    template = "{% if messages[0].content | length < 3 %}{{ raise_exception('Say more') }}{% endif %}" + "x" * CONTEXT
    worker.appear(chat_template=template)
    submitter.submit(chat("ua sentence"), NEUTRAL)
    with pytest.raises(ChatError, match="Say more"):
        submitter.submit(chat("uhi"), NEUTRAL)


@pytest.mark.parametrize(
    ("has_tokenizer", "template"),
    [
        (True, None),
        (False, EACH),
        (True, "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"),
    ],
)
def test_without_a_template_or_tokenizer_or_time_the_worker_decides(
    submitter: Submitter, worker: Worker, monkeypatch: pytest.MonkeyPatch, has_tokenizer: bool, template: str | None
) -> None:
    """The first is an older worker, which publishes no template."""
    monkeypatch.setattr(chat_rendering, "MAX_RENDERING_S", 0.1)
    worker.appear(has_chat_template=True, has_tokenizer=has_tokenizer, chat_template=template)
    run_id = submitter.submit(chat("u" + "x" * CONTEXT), NEUTRAL)
    assert worker.queued_ids() == [run_id]
