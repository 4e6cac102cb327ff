"""The comparison's events."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

import gradio as gr

from app.compare import explain, first_divergence
from app.handlers.watching import (
    WAITING,
    Newest,
    buttons,
    new_budget,
    stop_all,
    stop_button,
    token_of,
    vocab_size_of,
    whole,
    with_head,
)
from app.merging import Item, merged
from app.parts import Parts
from app.render import notices
from app.render.arms import Head, Plan, compare_head, head_from, left_behind, plan_of, planned_view, saved_view
from app.render.charts import charts
from app.render.comparison import CompareView, Followed
from app.render.form import Form
from app.render.inspector import inspector
from app.render.outcome import MAX_COLUMNS, outcome
from app.render.start import Start
from app.render.text import esc
from app.streaming import SKIP, Update
from app.submit import MAX_RUNS_OF_A_COMPARISON, draw_seed
from app.sweeps import MAX_ARMS
from models.errors import DecodeLabError, NotFoundError, RefusedError
from models.events import Event, TokenPicked

MAX_FOLLOWED: Final = 32  # runs of one page that are followed at the same time; the next begin as these end
SETTLE_S: Final = 0.5  # between two looks at figures, verdicts and charts


class CompareHandlers:
    """The events of the comparison."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._inspected = Newest()
        self._rebased = Newest()
        # The views that pages are following now, so that a page can ask for another baseline in mid-run.
        self._followed: dict[tuple[str | None, str], CompareView] = {}

    async def compare(
        self, prompt: str, asked: Mapping[str, Any], budget: Form, checkpoint: str | None, request: gr.Request
    ) -> AsyncGenerator[Update]:
        """Submit and follow all arms: columns, outcome, inspectors, figures, experiment id, alert, Run, Stop button."""
        yield *(SKIP,) * 5, notices.alert(None), *WAITING
        try:
            seed = str((budget or {}).get("seed") or draw_seed())
            plan = plan_of(asked, {**(budget or {}), "seed": seed})
            experiment_id, run_ids = await asyncio.to_thread(self._submit, prompt or "", plan, checkpoint or None)
        except DecodeLabError as exc:
            yield *(SKIP,) * 5, notices.alert(exc), *buttons(is_running=False)
            return
        view = planned_view(experiment_id, run_ids, plan)
        async with aclosing(self._watch(view, {}, request)) as updates:
            async for update in updates:
                yield update

    async def open_experiment(
        self,
        experiment_id: str | None,
        baseline: str | None,
        sources: str | None,
        start: str | None,
        request: gr.Request,
    ) -> AsyncGenerator[Update]:
        """A link was opened: prompt, arms, budget, then everything of `compare`.

        It is that of a comparison, or names saved runs (`sources`, ids with spaces between) to start arms from, or
        holds what stood on the playground (`start`, see `app.render.start`).
        """
        if not experiment_id:
            yield await asyncio.to_thread(self._start, (sources or "").split(), start or "")
            return
        try:
            detail = await asyncio.to_thread(self._parts.history.experiment, experiment_id)
            view = await asyncio.to_thread(saved_view, detail, _index(baseline))
        except DecodeLabError as exc:
            yield SKIP, SKIP, new_budget(), *(SKIP,) * 5, notices.alert(exc), SKIP, SKIP
            return
        prompt, asked, budget = compare_head(detail)
        head: Update = (prompt, gr.update(value=asked), whole(budget))
        seen = {run.id: run.events[-1].seq for run in detail.arms if run.events}
        async with aclosing(with_head(head, self._watch(view, seen, request))) as headed:
            async for update in headed:
                yield update

    async def inspect_arms(self, checkpoint: str | None, event: gr.EventData, request: gr.Request) -> Any:
        """The inspectors of the chosen arms at the chosen position, side by side; what made two of them part above."""
        is_newest = self._inspected.ask(request)
        html = await self._inspect(checkpoint, event)
        return html if is_newest() else SKIP

    async def _inspect(self, checkpoint: str | None, event: gr.EventData) -> str:
        vocab_size = await asyncio.to_thread(vocab_size_of, self._parts, checkpoint)
        tokens: dict[str, TokenPicked] = {}
        for arm in list(event.arms)[:MAX_COLUMNS]:
            try:
                tokens[str(arm["name"])] = await token_of(self._parts, str(arm["run"]), int(event.index))
            except NotFoundError:
                continue  # this arm is shorter
            except DecodeLabError as exc:
                return notices.hint(exc)
        panels = [inspector(token, vocab_size=vocab_size, title=name) for name, token in tokens.items()]
        words = _parting(tokens) if event.parted else ""
        return f'{words}<div class="dl-inspectors">{"".join(panels)}</div>'

    async def choose_baseline(self, event: gr.EventData, request: gr.Request) -> Update:
        """Compare with another arm from now on: columns, outcome, figures, alert.

        A page that is in mid-run gets them as it goes on.
        """
        is_newest = self._rebased.ask(request)
        followed = self._followed.get((request.session_hash, str(event.experiment)))
        if followed is not None:
            followed.asked_baseline = _index(event.baseline)
            return (SKIP,) * 4
        try:
            detail = await asyncio.to_thread(self._parts.history.experiment, str(event.experiment))
            view = await asyncio.to_thread(saved_view, detail, _index(event.baseline))
        except DecodeLabError as exc:
            return *(SKIP,) * 3, notices.alert(exc)
        return (view.columns(), *_settled(view), notices.alert(None)) if is_newest() else (SKIP,) * 4

    def kept(self, experiment_id: str | None) -> dict[str, Any]:
        """What the page's comparison is called and whether it has a star; nothing where there is none to be called."""
        try:
            found = self._parts.history.comparison(experiment_id or "")
        except DecodeLabError:
            return {}
        return {"comparison": found.id, "title": found.title or "", "is_starred": found.is_starred}

    async def stop_experiment(self, experiment_id: str | None) -> AsyncGenerator[Update]:
        """Ask for the end of every arm: alert, Stop button."""
        yield SKIP, stop_button(is_stopping=True)
        error = await asyncio.to_thread(self._stop_arms, experiment_id or "")
        if error is not None:
            yield notices.alert(error), stop_button()

    async def stop_arm(self, event: gr.EventData) -> str:
        """Ask for the end of one arm, all its seeds: alert."""
        run_ids = [str(run_id) for run_id in list(event.runs)[:MAX_RUNS_OF_A_COMPARISON]]
        return notices.alert(await asyncio.to_thread(stop_all, self._parts, run_ids))

    async def _watch(self, view: CompareView, seen: Mapping[str, int], request: gr.Request) -> AsyncGenerator[Update]:
        """Follow all arms in one: columns, outcome, inspectors, figures, experiment id, alert, Run, Stop button.

        `seen`: run id -> the last event that the view has already.
        """
        words = await asyncio.to_thread(_settled, view)
        head = words[0], "", words[1], view.experiment_id, notices.alert(None), *buttons(is_running=True)
        yield view.columns(), *head
        key = request.session_hash, view.experiment_id
        self._followed[key] = view
        error: DecodeLabError | None = None
        pace = _Pace(view)
        try:
            runs = [run for run in view.runs() if run.ended is None]
            async with aclosing(merged(self._follows(runs, seen))) as batches:
                async for batch in batches:
                    error = _apply(runs, batch) or error
                    view.take_asked_baseline()
                    view.update_divergence()
                    if pace.is_due(view):
                        words = await asyncio.to_thread(_settled, view)
                    # Words that stay the same are sent as no difference.
                    yield view.columns(), words[0], SKIP, words[1], *(SKIP,) * 4
            alert = notices.alert(error) if error else SKIP
            is_last = False
            while not is_last:
                view.take_asked_baseline()
                words = await asyncio.to_thread(_settled, view)
                yield view.columns(), words[0], SKIP, words[1], SKIP, alert, *buttons(is_running=False)
                is_last = view.asked_baseline is None
        finally:
            self._followed.pop(key, None)

    def _follows(self, runs: list[Followed], seen: Mapping[str, int]) -> list[AsyncGenerator[Event]]:
        gate = asyncio.Semaphore(MAX_FOLLOWED)
        return [self._follow_within(gate, run.run_id, seen.get(run.run_id, -1)) for run in runs]

    async def _follow_within(self, gate: asyncio.Semaphore, run_id: str, after: int) -> AsyncGenerator[Event]:
        async with gate, aclosing(self._parts.follower.follow(run_id, after)) as events:
            async for event in events:
                yield event

    def _start(self, sources: list[str], start: str) -> Update:
        """Prompt, arms and budget of saved runs or of the playground; the page as it is where neither is named."""
        if not sources and not start:
            return (SKIP,) * 11
        try:
            (prompt, asked, budget), concern = self._from_runs(sources) if sources else self._from_playground(start)
        except DecodeLabError as exc:
            return SKIP, SKIP, new_budget(), *(SKIP,) * 5, notices.alert(exc), SKIP, SKIP
        budget = {**budget, "seed": budget.get("seed") or str(draw_seed())}
        return prompt, gr.update(value=asked), whole(budget), *(SKIP,) * 5, notices.alert(concern), SKIP, SKIP

    def _from_runs(self, sources: list[str]) -> tuple[Head, RefusedError | None]:
        runs = [self._parts.history.run(run_id) for run_id in sources[:MAX_ARMS]]
        left = left_behind(runs)
        return head_from(runs), RefusedError(left) if left else None

    def _from_playground(self, text: str) -> tuple[Head, RefusedError | None]:
        start = Start.parse(text)
        if start.chat is None:
            return start.head(), None
        serving = self._parts.serving
        workers = [] if start.checkpoint else serving.workers()
        name = start.checkpoint or (workers[0].checkpoint.name if workers else "")
        preview = serving.preview_chat(name, start.chat)
        if preview is None:
            raise RefusedError(f"The chat template of {name} is not published here, so the chat cannot be compared.")
        concern = RefusedError("A message spells a special token; in this prompt, which is one text, it is that token.")
        return start.head(preview), concern if preview.num_tokens is None else None

    def _submit(self, prompt: str, plan: Plan, checkpoint: str | None) -> tuple[str, list[str]]:
        return self._parts.submitter.submit_comparison(prompt, plan.arms, checkpoint=checkpoint, seeds=plan.seeds)

    def _stop_arms(self, experiment_id: str) -> DecodeLabError | None:
        try:
            detail = self._parts.history.experiment(experiment_id)
        except DecodeLabError as exc:
            return exc
        return stop_all(self._parts, [arm.id for arm in detail.arms if not arm.status.is_terminal])


class _Pace:
    """When figures are due: soon after another run ended or the baseline changed, else twice a second."""

    def __init__(self, view: CompareView) -> None:
        self._state = self._state_of(view)
        self._settled_at = time.monotonic()

    def is_due(self, view: CompareView) -> bool:
        state = self._state_of(view)
        if state == self._state and time.monotonic() - self._settled_at < SETTLE_S:
            return False
        self._state, self._settled_at = state, time.monotonic()
        return True

    def _state_of(self, view: CompareView) -> tuple[int, int]:
        return view.baseline, view.num_ended


def _settled(view: CompareView) -> tuple[str, str]:
    """The sentences with the table, and the charts, of the view as it is now."""
    view.settle()
    return outcome(view), charts(view)


def _apply(runs: list[Followed], batch: list[Item]) -> DecodeLabError | None:
    """Hand every event to its run; the last failure among them."""
    error: DecodeLabError | None = None
    for index, event in batch:
        if isinstance(event, DecodeLabError):
            error = event
        else:
            runs[index].apply(event)
    return error


def _parting(tokens: Mapping[str, TokenPicked]) -> str:
    """What made two arms part at the tokens given."""
    if len(tokens) != 2:
        return ""
    (base, left), (arm, right) = tokens.items()
    found = first_divergence([left], [right])
    return f'<p class="dl-divergence">{esc(explain(found, a=base, b=arm))}</p>' if found else ""


def _index(text: object) -> int:
    """The arm that a page or an address names; the first where it names none."""
    try:
        return int(str(text))
    except ValueError:
        return 0
