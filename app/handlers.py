"""What the pages do: plain functions and async generators over the parts of the program, without any layout.

A handler answers with the values of the page's components, in the order that its docstring gives. Every check happens
here or behind: a page's event can be called by anyone who can reach the server.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

import gradio as gr

from app.history import RunFilter
from app.merging import HEARTBEAT_S, merged
from app.parts import Parts
from app.render import notices
from app.render.arms import MAX_ARMS, arms_settings, compare_head, compare_view, one_run_an_arm
from app.render.divergence import CompareView
from app.render.form import Form, settings_of, split
from app.render.history import history_rows, history_table
from app.render.inspector import EMPTY, inspector
from app.render.live import RunView
from app.render.panel import arm_name
from app.streaming import SKIP, Update
from app.submit import draw_seed
from models.errors import DecodeLabError, NotFoundError
from models.events import RunKind, StopReason, TokenPicked

EXAMPLE_PROMPT: Final = "The capital of France is"
# Run, Stop while a submit is on its way: a part that is away may take seconds to say so.
_WAITING: Final = (gr.update(interactive=False), SKIP)


class Handlers:
    """The events of all pages."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    # Playground

    async def run(self, prompt: str, form: Form, budget: Form, checkpoint: str | None) -> AsyncGenerator[Update]:
        """Submit and follow: strip, facts, inspector, run id, alert, Run button, Stop button."""
        yield SKIP, SKIP, SKIP, SKIP, notices.alert(None), *_WAITING
        try:
            settings = settings_of({**(form or {}), **(budget or {})})
            run_id = await asyncio.to_thread(
                self._parts.submitter.submit, prompt or "", settings, checkpoint=checkpoint or None
            )
        except DecodeLabError as exc:
            yield SKIP, SKIP, SKIP, SKIP, notices.alert(exc), *_buttons(is_running=False)
            return
        async with aclosing(self._watch(RunView(run_id, settings))) as updates:
            async for update in updates:
                yield update

    async def open_run(self, run_id: str | None) -> AsyncGenerator[Update]:
        """A run's link was opened: prompt, form, budget, then everything of `run`."""
        if not run_id:
            yield (SKIP,) * 10
            return
        try:
            detail = await asyncio.to_thread(self._parts.history.run, run_id)
        except DecodeLabError as exc:
            yield SKIP, SKIP, _new_budget(), SKIP, SKIP, SKIP, SKIP, notices.alert(exc), SKIP, SKIP
            return
        head: Update = (detail.prompt, *map(_whole, split(detail.settings)))
        updates = self._watch(RunView(run_id, detail.settings, detail.kind is RunKind.SCORE))
        async with aclosing(_headed(head, updates)) as headed:
            async for update in headed:
                yield update

    async def inspect(self, checkpoint: str | None, event: gr.EventData) -> str:
        """The inspector of a token that was chosen in the strip."""
        try:
            token = await self._token(str(event.run), int(event.index))
        except DecodeLabError as exc:
            return notices.hint(exc)
        return inspector(token, vocab_size=await asyncio.to_thread(self._vocab_size, checkpoint))

    async def stop(self, run_id: str | None) -> AsyncGenerator[Update]:
        """Ask for the run's end: alert, Stop button. The page goes on following until the end is there."""
        yield SKIP, _stop_button(is_stopping=True)
        error = await asyncio.to_thread(self._stop_all, [run_id] if run_id else [])
        if error is not None:
            yield notices.alert(error, run_id=run_id or ""), _stop_button()

    # Compare

    async def compare(
        self, prompt: str, arms: Sequence[Form], budget: Form, checkpoint: str | None
    ) -> AsyncGenerator[Update]:
        """Submit and follow all arms: columns, outcome, inspectors, experiment id, alert, Run button, Stop button."""
        yield SKIP, SKIP, SKIP, SKIP, notices.alert(None), *_WAITING
        try:
            settings = arms_settings(arms, budget)
            experiment_id, run_ids = await asyncio.to_thread(
                self._parts.submitter.submit_comparison, prompt or "", settings, checkpoint=checkpoint or None
            )
        except DecodeLabError as exc:
            yield SKIP, SKIP, SKIP, SKIP, notices.alert(exc), *_buttons(is_running=False)
            return
        view = compare_view(experiment_id, dict(enumerate(zip(run_ids, settings, strict=True))))
        async with aclosing(self._watch_arms(view)) as updates:
            async for update in updates:
                yield update

    async def open_experiment(self, experiment_id: str | None) -> AsyncGenerator[Update]:
        """A comparison's link was opened: prompt, arms, budget, then everything of `compare`."""
        if not experiment_id:
            yield (SKIP,) * 10
            return
        try:
            detail = await asyncio.to_thread(self._parts.history.experiment, experiment_id)
            arms_by_index = one_run_an_arm(detail)
            view = compare_view(experiment_id, {i: (arm.id, arm.settings) for i, arm in arms_by_index.items()})
        except DecodeLabError as exc:
            yield SKIP, SKIP, _new_budget(), SKIP, SKIP, SKIP, SKIP, notices.alert(exc), SKIP, SKIP
            return
        prompt, arms, budget = compare_head(detail)
        head: Update = (prompt, _whole(arms), _whole(budget))
        async with aclosing(_headed(head, self._watch_arms(view))) as headed:
            async for update in headed:
                yield update

    async def inspect_arms(self, checkpoint: str | None, event: gr.EventData) -> str:
        """The inspectors of all arms at the chosen position, side by side."""
        try:
            detail = await asyncio.to_thread(self._parts.history.experiment, str(event.experiment))
        except DecodeLabError as exc:
            return notices.hint(exc)
        vocab_size = await asyncio.to_thread(self._vocab_size, checkpoint)
        panels = []
        for i, arm in list(one_run_an_arm(detail).items())[:MAX_ARMS]:
            try:
                token = await self._token(arm.id, int(event.index))
            except NotFoundError:
                continue  # this arm is shorter
            panels.append(inspector(token, vocab_size=vocab_size, title=arm_name(i)))
        return f'<div class="dl-inspectors">{"".join(panels)}</div>'

    async def stop_experiment(self, experiment_id: str | None) -> AsyncGenerator[Update]:
        """Ask for the end of every arm: alert, Stop button."""
        yield SKIP, _stop_button(is_stopping=True)
        error = await asyncio.to_thread(self._stop_arms, experiment_id or "")
        if error is not None:
            yield notices.alert(error), _stop_button()

    # History

    def open_history(self, text: str, checkpoint: str, stop_reason: str) -> Update:
        """A link was opened: the three filters, then everything of `find_runs`. An unknown stop reason is none."""
        stop_reason = stop_reason if stop_reason in set(StopReason) else ""
        return text, checkpoint, stop_reason, *self.find_runs(text, checkpoint, stop_reason)

    def find_runs(self, text: str, checkpoint: str, stop_reason: str) -> Update:
        """The newest runs that match, in place of what is shown: everything of `more_runs`."""
        return self.more_runs(text, checkpoint, stop_reason, "")

    def more_runs(self, text: str, checkpoint: str, stop_reason: str, before: str) -> Update:
        """One more page of runs: the table's new rows, `before` of the next page, More button, alert."""
        filters = RunFilter(
            text=(text or "").strip(),
            checkpoint=checkpoint or None,
            stop_reason=StopReason(stop_reason) if stop_reason in set(StopReason) else None,
        )
        try:
            page = self._parts.history.page(filters, before=before or None, limit=50)
        except DecodeLabError as exc:
            return SKIP, SKIP, SKIP, notices.alert(exc)
        html = history_rows(page.rows) if before else history_table(page.rows, is_filtered=filters != RunFilter())
        table = gr.update(value={"html": html, "is_more": bool(before)})
        return table, page.next or "", gr.update(visible=page.next is not None), notices.alert(None)

    # All pages

    def status(self, checkpoint: str | None) -> Update:
        """Who serves what: the line at the top, and the list to choose from."""
        try:
            workers = self._parts.serving.workers()
        except DecodeLabError as exc:
            return notices.broken_line(exc), SKIP
        names = sorted({w.checkpoint.name for w in workers})
        chosen = checkpoint if checkpoint in names or not names else names[0]
        choice = gr.update(choices=names, value=chosen, visible=len(names) > 1) if names else SKIP
        return notices.checkpoint_line(workers, chosen), choice

    def count_tokens(self, prompt: str, form: Form, checkpoint: str | None) -> str:
        """How many tokens the prompt has; a dash where nobody can tell."""
        try:
            name = checkpoint or self._parts.serving.workers()[0].checkpoint.name
            parse_special = (form or {}).get("parse_special") == "on"
            number = self._parts.serving.count_tokens(name, prompt or "", parse_special=parse_special)
            return notices.token_count(number, self._parts.serving.info(name).context_length)
        except (DecodeLabError, IndexError):
            return notices.token_count(None, None)

    # Inside

    async def _watch(self, view: RunView) -> AsyncGenerator[Update]:
        """Follow one run from its first event: strip, facts, inspector, run id, alert, Run button, Stop button."""
        yield view.strip(), "", EMPTY, view.run_id, notices.alert(None), *_buttons(is_running=True)
        error: DecodeLabError | None = None
        async with aclosing(merged([self._parts.follower.follow(view.run_id)])) as batches:
            async for batch in batches:
                if not batch:
                    view.wait(HEARTBEAT_S)
                for _, event in batch:
                    if isinstance(event, DecodeLabError):
                        error = event
                    else:
                        view.apply(event)
                yield view.strip(), SKIP, SKIP, SKIP, SKIP, SKIP, SKIP
        alert = notices.alert(error, run_id=view.run_id) if error else SKIP
        yield view.strip(), view.facts(), SKIP, SKIP, alert, *_buttons(is_running=False)

    async def _watch_arms(self, view: CompareView) -> AsyncGenerator[Update]:
        """Follow all arms in one: columns, outcome, inspectors, experiment id, alert, Run button, Stop button."""
        yield view.columns(), view.words(), "", view.experiment_id, notices.alert(None), *_buttons(is_running=True)
        error: DecodeLabError | None = None
        words = ""
        follows = [self._parts.follower.follow(arm.view.run_id) for arm in view.arms]
        async with aclosing(merged(follows)) as batches:
            async for batch in batches:
                for index, event in batch:
                    if isinstance(event, DecodeLabError):
                        error = event
                    else:
                        view.arms[index].view.apply(event)
                view.update_divergence()
                before, words = words, view.words()
                yield view.columns(), SKIP if words == before else words, SKIP, SKIP, SKIP, SKIP, SKIP
        alert = notices.alert(error) if error else SKIP
        yield view.columns(), view.words(), SKIP, SKIP, alert, *_buttons(is_running=False)

    async def _token(self, run_id: str, position: int) -> TokenPicked:
        """The record of one token of a run, live or saved. Raises NotFoundError."""
        # A token's seq is at least its position + 2 (started and prefilled come first), more after a resumption.
        async with aclosing(self._parts.follower.follow(run_id, after=max(position, 0) + 1)) as events:
            async for event in events:
                if isinstance(event.payload, TokenPicked) and event.payload.position >= position:
                    return event.payload
        raise NotFoundError(f"Run {run_id} has no token {position}.", field="index")

    def _vocab_size(self, checkpoint: str | None) -> int | None:
        try:
            return self._parts.serving.info(checkpoint).vocab_size if checkpoint else None
        except DecodeLabError:
            return None

    def _stop_arms(self, experiment_id: str) -> DecodeLabError | None:
        try:
            detail = self._parts.history.experiment(experiment_id)
        except DecodeLabError as exc:
            return exc
        return self._stop_all([arm.id for arm in detail.arms if not arm.status.is_terminal])

    def _stop_all(self, run_ids: Sequence[str]) -> DecodeLabError | None:
        """Cancel every run, those after one that cannot be cancelled too; the first error."""
        first: DecodeLabError | None = None
        for run_id in run_ids:
            try:
                self._parts.submitter.cancel(run_id)
            except DecodeLabError as exc:
                first = first or exc
        return first


async def _headed(head: Update, updates: AsyncGenerator[Update]) -> AsyncGenerator[Update]:
    """`updates`, the first of them with `head` before it."""
    async with aclosing(updates):
        async for update in updates:
            yield *head, *update
            head = (SKIP,) * len(head)


def _stop_button(*, is_visible: bool = True, is_stopping: bool = False) -> Any:
    """Stop. A pass that is under way is not broken off, so a stop may take as long as a long prompt's prefill."""
    return gr.update(visible=is_visible, value="Stopping …" if is_stopping else "Stop", interactive=not is_stopping)


def _whole(value: Form | list[Form]) -> Any:
    """A form as an update. Bare, an empty one is mixed up with the skips after it, whose differences Gradio sends."""
    return gr.update(value=value)


def _new_budget() -> Any:
    """The budget of a page whose link led nowhere: a page that opens a link draws no seed itself."""
    return _whole({"seed": str(draw_seed())})


def _buttons(*, is_running: bool) -> tuple[Any, Any]:
    """Run, Stop: one of the two is there."""
    return gr.update(visible=not is_running, interactive=True), _stop_button(is_visible=is_running)
