"""The score page's events without a browser: what a link to a chat fills in."""

import asyncio
from dataclasses import replace

from app.handlers.score import ScoreHandlers
from models.events import Event, Started
from models.sampling import Settings
from tests.fakes.app import FakeStack


def test_a_chat_is_filled_in_as_its_template_gave_it_special_tokens_and_all() -> None:
    stack = FakeStack(token_s=0.0, queue_s=0.0)
    run_id = stack.submit("hello", Settings(seed=5, top_k=40, max_tokens=3))
    told = "<|im_start|>user\nhello<|im_end|>\n"
    run = stack.run(run_id)
    started = Started("c", "cpu", "float32", (1, 2), 0.0, 0.0, prompt_text=told)
    chat = replace(
        run,
        messages=[{"role": "user", "content": "hello"}],
        events=(Event(run_id, 1, 0, started), *run.events[1:]),
    )
    parts = replace(stack.parts, history=_History(chat))

    async def opened() -> list[tuple[object, ...]]:
        return [update async for update in ScoreHandlers(parts).open_run(run_id)]

    (update,) = asyncio.run(opened())
    prompt, text, form = update[:3]
    assert (prompt, text) == (told, run.text)
    assert form["value"] == {"top_k": "40", "parse_special": "on"}


class _History:
    def __init__(self, run: object) -> None:
        self._run = run

    def run(self, run_id: str) -> object:
        return self._run
