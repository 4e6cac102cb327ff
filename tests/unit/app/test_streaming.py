"""What the pages' updates are on their way to the browser."""

from typing import Any

import gradio as gr

from app.streaming import SKIP, Pages


def sent(*values: Any) -> list[Any]:
    """What the client gets for one output that is given `values`, then for the end."""
    with Pages(analytics_enabled=False) as demo:
        box = gr.Textbox()
        demo.load(lambda: "", outputs=[box])
    function = demo.fns[0]
    parts = [demo.handle_streaming_diffs(function, [value], "page", "event", final=False)[0] for value in values]
    return [*parts, demo.handle_streaming_diffs(function, [None], "page", "event", final=True)[0]]


def test_properties_are_replaced_and_not_edited() -> None:
    shown = gr.update(visible=True, value="Stop")
    assert sent(SKIP, shown, SKIP) == [SKIP, [["replace", [], shown]], [["replace", [], SKIP]], SKIP]


def test_what_stays_is_not_sent_again() -> None:
    shown = gr.update(visible=True)
    assert sent(shown, dict(shown)) == [shown, [], shown]


def test_a_plain_value_grows_by_edits() -> None:
    assert sent({"tokens": ["a"]}, {"tokens": ["a", "b"]})[1] == [["add", ["tokens", 1], "b"]]


def test_a_value_with_parts_is_not_emptied_by_a_skip() -> None:
    """As edits the skip would delete `tokens` from the object that the page has not taken yet."""
    value = {"tokens": ["a"]}
    assert sent(value, SKIP, value)[1:3] == [[["replace", [], SKIP]], [["replace", [], value]]]
