"""The score page's events."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.handlers.examine import patiently
from app.handlers.watching import WAITING, buttons, followed, whole, with_head
from app.parts import Parts
from app.record import RunDetail
from app.render import notices
from app.render.coverage import coverage_charts
from app.render.form import Form, settings_of, split
from app.render.inspector import EMPTY
from app.render.live import RunView
from app.render.score import score_facts
from app.render.text import sendable
from app.streaming import SKIP, Update
from models.errors import DecodeLabError
from models.events import RunKind, Status
from models.sampling import Settings


class ScoreHandlers:
    """The events of the score page."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def score(self, prompt: str, text: str, form: Form, checkpoint: str | None) -> AsyncGenerator[Update]:
        """Submit and follow: strip, figures, coverage, inspector, run id, alert, Run button, Stop button."""
        yield SKIP, SKIP, SKIP, SKIP, SKIP, notices.alert(None), *WAITING
        try:
            settings = settings_of(form or {})
            run_id = await asyncio.to_thread(
                self._parts.submitter.submit,
                prompt or "",
                settings,
                checkpoint=checkpoint or None,
                given_text=text or "",
            )
        except DecodeLabError as exc:
            yield SKIP, SKIP, SKIP, SKIP, SKIP, notices.alert(exc), *buttons(is_running=False)
            return
        async with aclosing(self._watch(RunView(run_id, settings, is_scored=True))) as updates:
            async for update in updates:
                yield update

    async def open_run(self, run_id: str | None) -> AsyncGenerator[Update]:
        """A link was opened: prompt, text and settings of its run, then everything of `score` where it is a score."""
        if not run_id:
            yield (SKIP,) * 11
            return
        try:
            run = await asyncio.to_thread(self._parts.history.run, run_id)
        except DecodeLabError as exc:
            yield *(SKIP,) * 8, notices.alert(exc), SKIP, SKIP
            return
        head = _head(run)
        if run.kind is not RunKind.SCORE:
            yield *head, *(SKIP,) * 8
            return
        async with aclosing(with_head(head, self._watch(RunView(run_id, run.settings, is_scored=True)))) as headed:
            async for update in headed:
                yield update

    async def _watch(self, view: RunView) -> AsyncGenerator[Update]:
        """Follow one score from its first event, then ask for its coverage: everything of `score`."""
        yield view.strip(), "", "", EMPTY, view.run_id, notices.alert(None), *buttons(is_running=True)
        alert = SKIP
        try:
            async with aclosing(followed(self._parts, view)) as changes:
                async for _ in changes:
                    yield view.strip(), *(SKIP,) * 7
        except DecodeLabError as exc:
            alert = notices.alert(exc, run_id=view.run_id)
        settings = view.settings or Settings()
        figures = score_facts(view.tokens, view.ended, view.prefilled, settings) if view.ended else ""
        is_whole = view.ended is not None and view.ended.status is Status.FINISHED
        waiting = '<p class="dl-hint">Computing coverage …</p>' if is_whole else ""
        yield view.strip(), figures, waiting, SKIP, SKIP, alert, *buttons(is_running=False)
        if is_whole:
            async with aclosing(self._coverage(view.run_id, settings)) as found:
                async for html in found:
                    yield SKIP, SKIP, html, *(SKIP,) * 5

    async def _coverage(self, run_id: str, settings: Settings) -> AsyncGenerator[str]:
        """The curves, once they are there; every second something that changes nothing."""
        try:
            async with aclosing(patiently(self._parts.examiner.coverage(run_id))) as answers:
                async for found in answers:
                    yield SKIP if found is None else coverage_charts(found, settings)
        except DecodeLabError as exc:
            yield notices.hint(exc)


def _head(run: RunDetail) -> Update:
    """Prompt, text and settings. A chat is filled in as its template gives it, special tokens and all."""
    settings, prompt = run.settings, run.prompt
    if run.messages is not None and run.started is not None and run.started.prompt_text is not None:
        settings, prompt = settings.with_changes(parse_special=True), run.started.prompt_text
    form, _ = split(settings)
    text = run.text if run.given_text is None else run.given_text
    return prompt, sendable(text), whole(form)
