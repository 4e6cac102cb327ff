"""The playground's events."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import gradio as gr

from app.branching import Fork
from app.handlers.frame import FrameHandlers
from app.handlers.watching import (
    WAITING,
    Newest,
    buttons,
    followed,
    new_budget,
    stop_all,
    stop_button,
    token_of,
    vocab_size_of,
    whole,
    with_head,
)
from app.parts import Parts
from app.render import notices
from app.render.branches import branches
from app.render.chat import Editor, editor_of, is_chat, template_shown
from app.render.form import Form, settings_of, split
from app.render.inspector import EMPTY, inspector
from app.render.live import RunView
from app.render.start import Start
from app.streaming import SKIP, Update
from app.submit import draw_seed, with_seed
from models.chat import Chat
from models.errors import DecodeLabError, RefusedError
from models.events import RunKind
from models.sampling import Settings


class PlaygroundHandlers:
    """The events of the playground."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._inspected = Newest()

    async def run(
        self, prompt: str, editor: Editor, form: Form, budget: Form, checkpoint: str | None
    ) -> AsyncGenerator[Update]:
        """Submit and follow: strip, facts, inspector, run id, alert, Run button, Stop button."""
        yield SKIP, SKIP, SKIP, SKIP, notices.alert(None), *WAITING
        try:
            settings = settings_of({**(form or {}), **(budget or {})})
            said = Chat.parse(editor.get("messages")) if is_chat(editor) else prompt or ""
            run_id = await asyncio.to_thread(
                self._parts.submitter.submit, said, settings, checkpoint=checkpoint or None
            )
        except DecodeLabError as exc:
            yield SKIP, SKIP, SKIP, SKIP, notices.alert(exc), *buttons(is_running=False)
            return
        async with aclosing(self._watch(RunView(run_id, settings))) as updates:
            async for update in updates:
                yield update

    async def open_link(self, run_id: str | None, start: str | None) -> AsyncGenerator[Update]:
        """The page was opened: prompt, chat, form, budget, then everything of `run`.

        `start` is what stood in the forms before, as `Start` reads it; beside a run it goes before what that run had,
        and counts for nothing where it cannot be read.
        """
        head, alert = None, SKIP
        try:
            head = _head(Start.parse(start)) if start else None
        except DecodeLabError as exc:
            if not run_id:
                head, alert = (SKIP, SKIP, SKIP, new_budget()), notices.alert(exc)
        if not run_id:
            yield *(head or (SKIP,) * 4), *(SKIP,) * 4, alert, SKIP, SKIP
            return
        async with aclosing(self.open_run(run_id, head)) as updates:
            async for update in updates:
                yield update

    async def open_run(self, run_id: str, head: Update | None = None) -> AsyncGenerator[Update]:
        """A run, with `head` or its own prompt, chat, form and budget; then everything of `run`."""
        try:
            detail = await asyncio.to_thread(self._parts.history.run, run_id)
        except DecodeLabError as exc:
            yield *(head or (SKIP, SKIP, SKIP, new_budget())), *(SKIP,) * 4, notices.alert(exc), SKIP, SKIP
            return
        if head is None:
            prompt = SKIP if detail.messages is not None else detail.prompt
            editor = gr.update(value=editor_of(detail.messages))
            head = (prompt, editor, *map(whole, split(detail.settings)))
        view = RunView(run_id, detail.settings, detail.kind is RunKind.SCORE, fork_position=detail.fork_position)
        updates = self._watch(view)
        async with aclosing(with_head(head, updates)) as headed:
            async for update in headed:
                yield update

    async def branch(self, budget: Form, event: gr.EventData) -> AsyncGenerator[Update]:
        """Go on from a token of an ended run with something else: everything of `open_run`."""
        nothing = (SKIP,) * 8
        yield *nothing, notices.alert(None), SKIP, SKIP
        try:
            run_id = await asyncio.to_thread(self._branch, str(event.run), _fork(event), budget or {})
        except DecodeLabError as exc:
            yield *nothing, notices.alert(exc), SKIP, SKIP  # the run that was to be branched may go on, and be stopped
            return
        async with aclosing(self.open_run(run_id)) as updates:
            async for update in updates:
                yield update

    async def inspect(self, checkpoint: str | None, event: gr.EventData, request: gr.Request) -> Any:
        """The inspector of the token that was chosen last in the strip."""
        is_newest = self._inspected.ask(request)
        try:
            token = await token_of(self._parts, str(event.run), int(event.index))
        except DecodeLabError as exc:
            return notices.hint(exc) if is_newest() else SKIP
        vocab_size = await asyncio.to_thread(vocab_size_of, self._parts, checkpoint)
        return inspector(token, vocab_size=vocab_size, can_branch=True) if is_newest() else SKIP

    def read_prompt(self, prompt: str, editor: Editor, form: Form, checkpoint: str | None) -> Update:
        """What the prompt becomes: the number of its tokens, and of a chat the text that its template sends."""
        serving = self._parts.serving
        if not is_chat(editor):
            return FrameHandlers(self._parts).count_tokens(prompt, form, checkpoint), ""
        try:
            name = checkpoint or serving.workers()[0].checkpoint.name
            preview = serving.preview_chat(name, Chat.parse(editor.get("messages")))
            number = preview.num_tokens if preview else None
            return notices.token_count(number, serving.info(name).context_length), template_shown(preview)
        except IndexError:
            return notices.token_count(None, None), ""
        except DecodeLabError as exc:
            return notices.token_count(None, None), notices.hint(exc)

    def settings_json(self, form: Form, budget: Form) -> Update:
        """The settings that the forms ask for, as the JSON that every door of the program takes: text, alert."""
        try:
            settings = settings_of({**(form or {}), **(budget or {})})
        except DecodeLabError as exc:
            return SKIP, notices.alert(exc)
        values = {**settings.changed(), "max_tokens": settings.max_tokens, "seed": settings.seed}
        return json.dumps(values, ensure_ascii=False, indent=1), notices.alert(None)

    def apply_json(self, text: str) -> Update:
        """Pasted settings: form, budget, alert. What they do not name becomes neutral, but the seed, which is drawn."""
        try:
            settings = with_seed(Settings.parse_json(text or "{}"))
        except DecodeLabError as exc:
            return SKIP, SKIP, notices.alert(exc)
        return *map(whole, split(settings)), notices.alert(None)

    async def stop(self, run_id: str | None) -> AsyncGenerator[Update]:
        """Ask for the run's end: alert, Stop button. The page goes on following until the end is there."""
        yield SKIP, stop_button(is_stopping=True)
        error = await asyncio.to_thread(stop_all, self._parts, [run_id] if run_id else [])
        if error is not None:
            yield notices.alert(error, run_id=run_id or ""), stop_button()

    async def _watch(self, view: RunView) -> AsyncGenerator[Update]:
        """Follow one run from its first event: strip, facts, inspector, run id, alert, Run button, Stop button."""
        yield view.strip(), "", EMPTY, view.run_id, notices.alert(None), *buttons(is_running=True)
        alert = SKIP
        try:
            async with aclosing(followed(self._parts, view)) as changes:
                async for _ in changes:
                    yield view.strip(), SKIP, SKIP, SKIP, SKIP, SKIP, SKIP
        except DecodeLabError as exc:
            alert = notices.alert(exc, run_id=view.run_id)
        facts = view.facts() + await asyncio.to_thread(self._branches, view.run_id)
        yield view.strip(), facts, SKIP, SKIP, alert, *buttons(is_running=False)

    def _branch(self, parent_id: str, fork: Fork, budget: Form) -> str:
        parent = self._parts.history.run(parent_id)
        if not parent.status.is_terminal:
            raise RefusedError(f"Run {parent_id} still goes on; stop it, or wait for its end, then branch.")
        max_tokens = settings_of({"max_tokens": budget.get("max_tokens", "")}).max_tokens
        return self._parts.submitter.branch(parent, fork, max_tokens=max_tokens)

    def _branches(self, run_id: str) -> str:
        """The fold of the tree; nothing where it cannot be read, as the run itself is on the page all the same."""
        try:
            return branches(self._parts.history.family(run_id), run_id)
        except DecodeLabError:
            return ""


def _head(start: Start) -> Update:
    """Prompt, chat, form, budget. The text of a completion stays where a chat is what was written last."""
    prompt = start.prompt if start.chat is None else SKIP
    editor = editor_of(None if start.chat is None else start.chat.as_list())
    budget = {**start.budget, "seed": start.budget.get("seed") or str(draw_seed())}
    return prompt, gr.update(value=editor), whole(start.form), whole(budget)


def _fork(event: gr.EventData) -> Fork:
    """What the page asks for. Raises RefusedError for what is no place in a run."""
    position, token_id, text = event.index, event.token_id, event.text
    if not isinstance(position, int) or not isinstance(token_id, int | None) or not isinstance(text, str):
        raise RefusedError("A branch needs a token's position, and a candidate's id or a text.")
    return Fork(position, token_id, text)
