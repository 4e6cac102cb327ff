"""What a link from the playground to Compare says."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat_preview import ChatPreview, TemplatePiece
from app.render.arms import plan_of
from app.render.form import split
from app.render.start import Start
from models.chat import Chat
from models.errors import ChatError, RefusedError
from models.sampling import Settings
from tests.fakes.any_settings import any_settings


@given(any_settings, st.text())
def test_what_stood_on_the_playground_is_what_both_arms_run(values: dict[str, Any], prompt: str) -> None:
    settings = Settings.parse({**values, "seed": 5})
    form, budget = split(settings)
    text = json.dumps({"prompt": prompt, "form": form, "budget": budget})
    shown, asked, back = Start.parse(text).head()
    assert shown == prompt.encode("utf-8", "replace").decode()
    assert plan_of(asked, back).arms == [settings] * 2


def test_a_chat_becomes_its_templates_text_with_special_tokens() -> None:
    messages = [{"role": "user", "content": "hi"}]
    start = Start.parse(json.dumps({"messages": messages, "checkpoint": "c", "form": {"top_k": "3"}, "budget": {}}))
    assert (start.chat, start.checkpoint) == (Chat.parse(messages), "c")
    pieces = (TemplatePiece("<|im_start|>", True), TemplatePiece("user\nhi", False))
    prompt, asked, _ = start.head(ChatPreview(pieces, 4))
    assert prompt == "<|im_start|>user\nhi"
    assert asked["arms"] == [{"top_k": "3", "parse_special": "on"}] * 2


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "[" * 100_000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="damaged"):
        Start.parse(text)


def test_messages_that_are_no_chat_are_refused_by_number() -> None:
    with pytest.raises(ChatError, match="message 1"):
        Start.parse('{"messages": [{"role": "cook", "content": ""}]}')


def test_only_texts_of_controls_pass() -> None:
    values = {"prompt": 5, "form": {"seed": "1", "no": "1", "top_k": 4, "min_p": "0.1"}, "budget": {"seed": "\ud800"}}
    start = Start.parse(json.dumps(values))
    assert (start.prompt, start.form, start.budget) == ("", {"min_p": "0.1"}, {"seed": "?"})
    assert Start.parse('{"form": [], "budget": "x"}').form == {}
