"""The folds that look back at a run: influence, cache check, what-if, replay.

Each answers with its fold's value: `run` that it is about, `serial` of the question, `html` to show, `busy` while
that is not the answer yet.
While a worker computes, something is sent every second, so that a page that was left is noticed and its question is
dropped.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import gradio as gr

from app.handlers.watching import Newest
from app.merging import HEARTBEAT_S, merged
from app.parts import Parts
from app.record import RunDetail
from app.render import notices
from app.render.influence import cache_check_words, influence_words
from app.render.replay import progress_words, replay_words
from app.render.what_if import what_if_form, what_if_lines, what_if_settings, what_if_words
from models.errors import DecodeLabError
from models.events import Event, RunKind, TokenPicked
from models.examination import Influence

Shown = dict[str, Any]
_Result = TypeVar("_Result")


class ExamineHandlers:
    """The events of the folds."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._asked = Newest()

    async def influence(self, event: gr.EventData) -> AsyncGenerator[Shown]:
        """What each active control did to the run."""
        run_id, about = str(event.run), _about(event)
        try:
            run = await self._run(run_id)
            async with aclosing(patiently(self._parts.examiner.influence(run_id))) as answers:
                async for found in answers:
                    yield _busy(about) if found is None else _shown(about, _influence(found, run))
        except DecodeLabError as exc:
            yield _shown(about, notices.hint(exc))

    async def check_cache(self, event: gr.EventData) -> AsyncGenerator[Shown]:
        """The run with its cache against one pass without."""
        run_id, about = str(event.run), _about(event)
        try:
            run = await self._run(run_id)
            dtype = run.started.dtype if run.started else None
            async with aclosing(patiently(self._parts.examiner.check_cache(run_id))) as answers:
                async for found in answers:
                    yield _busy(about) if found is None else _shown(about, cache_check_words(found, dtype=dtype))
        except DecodeLabError as exc:
            yield _shown(about, notices.hint(exc))

    async def what_if(self, event: gr.EventData, request: gr.Request) -> AsyncGenerator[Shown]:
        """The run under other settings: `own` is the run's form, then strip and verdict.

        A question that a later one has overtaken is dropped.
        """
        is_newest = self._asked.ask(request)
        run_id, about = str(event.run), _about(event)
        own: dict[str, str] | None = None
        try:
            run = await self._run(run_id)
            own = what_if_form(run.settings)
            settings = run.settings if event.form is None else what_if_settings(run.settings, dict(event.form))
            async with aclosing(patiently(self._parts.examiner.what_if(run_id, settings))) as answers:
                async for found in answers:
                    if not is_newest():
                        return
                    if found is None:
                        yield {**_busy(about), "own": own}
                        continue
                    first = found.first_difference
                    is_scored = run.kind is RunKind.SCORE
                    noun = "branch" if run.opening_ids else "run"
                    html = what_if_words(run.tokens, found, is_scored=is_scored, noun=noun)
                    yield {
                        **_shown(about, html),
                        "own": own,
                        "lines": what_if_lines(run.tokens, found),
                        "first": None if first is None or is_scored else first.position,
                    }
        except DecodeLabError as exc:
            yield {**_shown(about, notices.hint(exc)), "own": own, "field": exc.field}

    async def replay(self, event: gr.EventData) -> AsyncGenerator[Shown]:
        """The same run again, a branch from the same tokens, and the verdict."""
        run_id, about = str(event.run), _about(event)
        try:
            run = await self._run(run_id)
            fresh_id = await asyncio.to_thread(self._parts.submitter.again, run)
            tokens: list[TokenPicked] = []
            yield _busy(about, progress_words(run.tokens, tokens))
            async with aclosing(merged([self._parts.follower.follow(fresh_id)])) as batches:
                async for batch in batches:
                    for _, item in batch:
                        _take(item, tokens)
                    yield _busy(about, progress_words(run.tokens, tokens))
            yield _shown(about, replay_words(run, await self._run(fresh_id)))
        except DecodeLabError as exc:
            yield _shown(about, notices.hint(exc))

    async def _run(self, run_id: str) -> RunDetail:
        return await asyncio.to_thread(self._parts.history.run, run_id)


async def patiently(work: Coroutine[Any, Any, _Result]) -> AsyncGenerator[_Result | None]:
    """What `work` gives, and None for every second until it is there. Closing this cancels the work."""
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=HEARTBEAT_S))[0]:
            yield None
        yield task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _influence(found: Influence, run: RunDetail) -> str:
    is_scored = run.kind is RunKind.SCORE
    return influence_words(found, run.settings, is_scored=is_scored, num_given=len(run.opening_ids))


def _take(item: Event | DecodeLabError, tokens: list[TokenPicked]) -> None:
    if isinstance(item, DecodeLabError):
        raise item
    if isinstance(item.payload, TokenPicked):
        tokens.append(item.payload)


def _about(event: gr.EventData) -> Shown:
    return {"run": str(event.run), "serial": int(event.serial)}


def _shown(about: Shown, html: str) -> Shown:
    return {**about, "html": html, "busy": False}


def _busy(about: Shown, html: str = '<p class="dl-hint">Computing …</p>') -> Shown:
    return {**about, "html": html, "busy": True}
