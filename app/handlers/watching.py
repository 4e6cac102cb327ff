"""What the pages that follow runs have in common: their buttons, one token's record, the end of several runs."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import gradio as gr

from app.merging import HEARTBEAT_S, merged
from app.parts import Parts
from app.render.form import Form
from app.render.live import RunView
from app.streaming import SKIP, Update
from app.submit import draw_seed
from models.errors import DecodeLabError, NotFoundError
from models.events import TokenPicked

EXAMPLE_PROMPT: Final = "The capital of France is"
MAX_PAGES: Final = 10_000  # that are remembered; what is forgotten counts as newest
# Run, Stop while a submit is on its way: a part that is away may take seconds to say so.
WAITING: Final = (gr.update(interactive=False), SKIP)


class Newest:
    """Which question of a page is its newest: one that another has overtaken is not to be answered any more.

    Gradio's own `always_last` asks again with the data of the first event, so it is for events without data alone.
    """

    def __init__(self) -> None:
        self._asked: OrderedDict[str, object] = OrderedDict()  # by page, the last that asked at the end

    def ask(self, request: gr.Request) -> Callable[[], bool]:
        """Note a question; the function tells whether it is the page's newest still."""
        page, question = str(request.session_hash), object()
        self._asked[page] = question
        self._asked.move_to_end(page)
        if len(self._asked) > MAX_PAGES:
            self._asked.popitem(last=False)
        return lambda: self._asked.get(page, question) is question


async def followed(parts: Parts, view: RunView) -> AsyncGenerator[None]:
    """Let the events of one run into its view, and stop after each batch; after a second without any, too.

    Raises at the end, when all that came is in the view, the DecodeLabError that kept the rest away.
    """
    error: DecodeLabError | None = None
    async with aclosing(merged([parts.follower.follow(view.run_id)])) as batches:
        async for batch in batches:
            if not batch:
                view.wait(HEARTBEAT_S)
            for _, event in batch:
                if isinstance(event, DecodeLabError):
                    error = event
                else:
                    view.apply(event)
            yield
    if error is not None:
        raise error


async def with_head(head: Update, updates: AsyncGenerator[Update]) -> AsyncGenerator[Update]:
    """`updates`, the first of them with `head` before it."""
    async with aclosing(updates):
        async for update in updates:
            yield *head, *update
            head = (SKIP,) * len(head)


def stop_button(*, is_visible: bool = True, is_stopping: bool = False) -> Any:
    """Stop. A pass that is under way is not broken off, so a stop may take as long as a long prompt's prefill."""
    return gr.update(visible=is_visible, value="Stopping …" if is_stopping else "Stop", interactive=not is_stopping)


def whole(value: Form | list[Form]) -> Any:
    """A form as an update. Bare, an empty one is mixed up with the skips after it, whose differences Gradio sends."""
    return gr.update(value=value)


def new_budget() -> Any:
    """The budget of a page whose link led nowhere: a page that opens a link draws no seed itself."""
    return whole({"seed": str(draw_seed())})


def buttons(*, is_running: bool) -> tuple[Any, Any]:
    """Run, Stop: one of the two is there."""
    return gr.update(visible=not is_running, interactive=True), stop_button(is_visible=is_running)


async def token_of(parts: Parts, run_id: str, position: int) -> TokenPicked:
    """The record of one token of a run, live or saved. Raises NotFoundError."""
    # A token's seq is at least its position + 2 (started and prefilled come first), more after a resumption.
    async with aclosing(parts.follower.follow(run_id, after=max(position, 0) + 1)) as events:
        async for event in events:
            if isinstance(event.payload, TokenPicked) and event.payload.position >= position:
                return event.payload
    raise NotFoundError(f"Run {run_id} has no token {position}.", field="index")


def vocab_size_of(parts: Parts, checkpoint: str | None) -> int | None:
    """How many tokens a served checkpoint knows; None where that is not known now."""
    try:
        return parts.serving.info(checkpoint).vocab_size if checkpoint else None
    except DecodeLabError:
        return None


def stop_all(parts: Parts, run_ids: Sequence[str]) -> DecodeLabError | None:
    """Cancel every run, those after one that cannot be cancelled too; the first error."""
    first: DecodeLabError | None = None
    for run_id in run_ids:
        try:
            parts.submitter.cancel(run_id)
        except DecodeLabError as exc:
            first = first or exc
    return first
