"""Chats that are none are refused with the message's number."""

from typing import Any

import pytest

from models.chat import MAX_MESSAGES, Chat, Message, Role
from models.errors import ChatError

HI = {"role": "user", "content": "hi"}


def test_a_chat_comes_back_from_its_json() -> None:
    values = [{"role": "system", "content": ""}, HI, {"role": "assistant", "content": "\0 😀"}]
    chat = Chat.parse(values)
    assert chat.as_list() == values
    assert chat.messages[1] == Message(Role.USER, "hi")
    assert chat.text == "\n\nhi\n\n\0 😀"
    assert Chat.parse_json('[{"role": "user", "content": "hi"}]') == Chat.said("hi") == Chat.parse([HI])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], "no message"),
        ({}, "must be a list"),
        ("hi", "must be a list"),
        (None, "not nothing"),
        ([HI, "hi"], "message 2 must be an object"),
        ([{"role": "user"}], "content of message 1 must be text, not nothing"),
        ([{"role": "user", "content": ["hi"]}], "must be text, not list"),
        (
            [HI, {"role": "root", "content": "hi"}],
            "message 2 has the role 'root'; the roles are system, user, assistant",
        ),
        ([{"role": ["user"], "content": "hi"}], "has the role"),
        ([{**HI, "name": "x"}], "has a field 'name'"),
        ([{"role": "user", "content": "a\ud800"}], r"character 1 of message 1 is a lone surrogate \(U\+D800\)"),
        ([HI] * (MAX_MESSAGES + 1), "1,001 messages"),
    ],
)
def test_what_is_no_chat_is_refused(values: Any, words: str) -> None:
    with pytest.raises(ChatError, match=words) as refused:
        Chat.parse(values)
    assert (refused.value.code, refused.value.field) == ("invalid_chat", "messages")


def test_what_is_no_json_is_refused() -> None:
    for text in ("[", "[" * 100_000, "hi"):
        with pytest.raises(ChatError, match="not valid JSON"):
            Chat.parse_json(text)
