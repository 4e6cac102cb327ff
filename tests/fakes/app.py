"""Stand-ins for the parts behind the pages: scripted runs that tell their events with delays, all in memory.

`python -m tests.fakes.app --port 7870` serves the real pages over them, to look at without a worker.
"""

import argparse
import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import uvicorn
from fastapi import FastAPI

from app.branching import Fork
from app.chat_preview import ChatPreview, chat_preview
from app.family import Relative
from app.history import Comparison, RunFilter, RunPage
from app.main import with_pages
from app.overview import ActiveRun, FailedRun, QueueLine, Snapshot, Spread
from app.parts import Parts
from app.record import ExperimentDetail, RunDetail, text_of
from app.run_filter import NEWEST_FIRST, Sort
from app.submit import check_size, spread
from models.chat import Chat, prompt_messages, prompt_text
from models.errors import (
    BrokerUnavailableError,
    DecodeLabError,
    NotFoundError,
    NoWorkerError,
    PromptError,
    UnknownCheckpointError,
)
from models.events import Ended, Event, Status, TokenPicked
from models.examination import CacheCheck, Coverage, Influence, WhatIf
from models.presence import CheckpointInfo, WorkerPresence
from models.sampling import Settings
from tests.fakes.branches import begin_as, family_of, repeat
from tests.fakes.chatml import CHATML, byte_tokenizer
from tests.fakes.examiner import FakeExaminer
from tests.fakes.scripted_runs import (
    CHECKPOINT,
    TEXT,
    FakeRun,
    checkpoint_info,
    payloads_of,
    pieces_of,
    summary_of,
)


class FakeStack:
    """Serving, Submitter, Follower, History and Examiner in one object; `failures` makes a call raise."""

    def __init__(self, *, text: str = TEXT, token_s: float = 0.03, queue_s: float = 0.2) -> None:
        self.text = text
        self.token_s = token_s
        self.queue_s = queue_s
        self.runs: dict[str, FakeRun] = {}
        self.experiments: dict[str, list[str]] = {}
        self._readers: set[object] = set()  # a page that leaves late takes its reader from the set that it was in
        self.deaf_s = 0.0  # a cancelled run goes on for so long
        self.failures: dict[str, DecodeLabError] = {}
        self.texts: dict[tuple[int, int], str] = {}  # what an arm says under a seed, where that is not `text`
        self.tail: list[TokenPicked] | None = None  # tokens to tell instead of those of `text`
        self.spreads: list[Spread] = []
        self.failed: list[FailedRun] = []
        self.examiner = FakeExaminer(lambda run_id: self.run(run_id).tokens, lambda run_id: self._run(run_id).settings)
        self._ids = itertools.count(1)

    @property
    def num_readers(self) -> int:
        return len(self._readers)

    @property
    def parts(self) -> Parts:
        return Parts(self, self, self, self, self, self)

    # Serving

    def workers(self) -> list[WorkerPresence]:
        self._fail("workers")
        return [WorkerPresence("w1", "host", 1, "2026-01-01T00:00:00Z", 4, 0, checkpoint_info(), {})]

    def info(self, name: str) -> CheckpointInfo:
        if name != CHECKPOINT:
            raise UnknownCheckpointError(f"No checkpoint {name!r} is served; served are {CHECKPOINT}.")
        return checkpoint_info()

    def count_tokens(self, name: str, prompt: str, *, parse_special: bool = False) -> int | None:
        return len(pieces_of(prompt))

    def preview_chat(self, name: str, chat: Chat) -> ChatPreview | None:
        return chat_preview(chat, self.info(name), CHATML, byte_tokenizer())

    # Submitter

    def submit(
        self, prompt: str | Chat, settings: Settings, *, checkpoint: str | None = None, given_text: str | None = None
    ) -> str:
        self._fail("submit")
        if not prompt:
            raise PromptError("The prompt is empty. Type the text that the checkpoint is to continue.")
        run = self._add(prompt_text(prompt), settings, 0, given_text=given_text)
        run.messages = prompt_messages(prompt)
        return run.id

    def submit_comparison(
        self, prompt: str, arms: Sequence[Settings], *, checkpoint: str | None = None, seeds: int = 1
    ) -> tuple[str, list[str]]:
        self._fail("submit")
        check_size(len(arms), seeds)
        experiment_id = f"experiment-{next(self._ids)}"
        runs = []
        for arm, sample, settings in spread(arms, seeds):
            run = self._add(prompt, settings, arm, sample)
            run.experiment_id, run.arm_index, run.sample_index = experiment_id, arm, sample
            runs.append(run.id)
        self.experiments[experiment_id] = runs
        return experiment_id, runs

    def branch(self, parent: RunDetail, fork: Fork, *, max_tokens: int | None = None) -> str:
        self._fail("submit")
        run = self._add(parent.prompt, parent.settings, 0)
        begin_as(run, parent, fork)
        return run.id

    def again(self, run: RunDetail) -> str:
        self._fail("submit")
        fresh = self._add(run.prompt, run.settings, 0, given_text=run.given_text)
        fresh.messages = run.messages
        if run.fork_position is not None:
            repeat(fresh, self._run(run.id))
        return fresh.id

    def cancel(self, run_id: str) -> None:
        self._fail("cancel")
        threading.Timer(self.deaf_s, self._run(run_id).cancel).start()

    # Follower

    async def follow(self, run_id: str, after: int = -1) -> AsyncIterator[Event]:
        readers, reader = self._readers, object()
        readers.add(reader)
        try:
            run = self._run(run_id)
            while True:
                for event in run.events()[after + 1 :]:
                    after = event.seq
                    yield event
                    if isinstance(event.payload, Ended):
                        return
                await asyncio.sleep(0.01)
        finally:
            readers.discard(reader)

    # History: enough to list; what a person changes in it is tested over a real database (tests/e2e/test_history.py)

    def purge(self) -> int:
        return 0

    def page(
        self,
        filters: RunFilter,
        *,
        sort: Sort = NEWEST_FIRST,
        before: str | None = None,
        limit: int = 50,
        is_grouped: bool = False,
    ) -> RunPage:
        self._fail("page")
        rows = [summary_of(run) for run in reversed(self.runs.values())]
        rows = [r for r in rows if filters.text.lower() in (r.prompt_start + r.text_start).lower()]
        if filters.stop_reason is not None:
            rows = [r for r in rows if r.stop_reason is filters.stop_reason]
        if before is not None:
            rows = rows[[r.id for r in rows].index(before) + 1 :]
        return RunPage(rows[:limit], rows[limit - 1].id if len(rows) > limit else None)

    def run(self, run_id: str) -> RunDetail:
        run = self._run(run_id)
        events = run.events()
        ended = next((e.payload for e in events if isinstance(e.payload, Ended)), None)
        return RunDetail(
            id=run.id,
            status=ended.status if ended else Status.RUNNING,
            created_at=run.created_at,
            started_at=None,
            ended_at=None,
            enqueued_at=None,
            checkpoint=run.checkpoint,
            prompt=run.prompt,
            settings=run.settings,
            text=text_of(events),
            events=tuple(events),
            arm_index=run.arm_index,
            sample_index=run.sample_index,
            messages=run.messages,
            parent_id=run.parent_id,
            fork_position=run.fork_position,
            given_text=run.given_text,
            stop=ended.stop if ended else None,
        )

    def family(self, run_id: str) -> list[Relative]:
        return family_of(self.runs, self._run(run_id))

    def experiment(self, experiment_id: str) -> ExperimentDetail:
        if experiment_id not in self.experiments:
            raise NotFoundError(f"There is no comparison {experiment_id}.", field="id")
        arms = [self.run(run_id) for run_id in self.experiments[experiment_id]]
        return ExperimentDetail(experiment_id, datetime.now(UTC), CHECKPOINT, arms[0].prompt, 0, None, None, arms)

    def comparison(self, experiment_id: str) -> Comparison:
        number = len(self.experiment(experiment_id).arms)
        return Comparison(experiment_id, None, None, number, number)

    # Overview

    def take(self) -> Snapshot:
        runs = [run for run in self.runs.values() if not any(isinstance(e.payload, Ended) for e in run.events())]
        active = [
            ActiveRun(run.id, run.checkpoint, run.prompt, Status.RUNNING, 1, len(run.events()), 2.0) for run in runs
        ]
        queues = [QueueLine(CHECKPOINT, 0, len(runs), None)] if runs else []
        problems = [self.failures["workers"].message] if "workers" in self.failures else []
        workers = [] if problems else self.workers()
        return Snapshot(datetime.now(UTC), workers, queues, active, self.failed, self.spreads, problems)

    # Examiner

    async def influence(self, run_id: str) -> Influence:
        return await self.examiner.influence(run_id)

    async def what_if(self, run_id: str, settings: Settings) -> WhatIf:
        return await self.examiner.what_if(run_id, settings)

    async def coverage(self, run_id: str) -> Coverage:
        return await self.examiner.coverage(run_id)

    async def check_cache(self, run_id: str) -> CacheCheck:
        return await self.examiner.check_cache(run_id)

    # Inside

    def _fail(self, call: str) -> None:
        if call in self.failures:
            raise self.failures[call]

    def _run(self, run_id: str) -> FakeRun:
        if run_id not in self.runs:
            raise NotFoundError(f"There is no run {run_id}.", field="id")
        return self.runs[run_id]

    def _add(
        self, prompt: str, settings: Settings, arm: int, sample: int = 0, *, given_text: str | None = None
    ) -> FakeRun:
        number = next(self._ids)
        run = FakeRun(
            id=f"run-{number:04d}",
            prompt=prompt,
            settings=settings,
            checkpoint=CHECKPOINT,
            payloads=payloads_of(prompt, settings, self._text(arm, sample), given=given_text, tail=self.tail),
            given_text=given_text,
            started=time.monotonic(),
            token_s=self.token_s,
            queue_s=self.queue_s,
        )
        self.runs[run.id] = run
        return run

    def _text(self, arm: int, sample: int) -> str:
        text = self.text if arm == 0 else self.text.replace("art", "gardens" if arm == 1 else "light", 1)
        return self.texts.get((arm, sample), text)


def no_worker() -> NoWorkerError:
    return NoWorkerError("No worker is alive. Start the whole stack with `make up`, or one with `decodelab worker`.")


def broker_away() -> BrokerUnavailableError:
    return BrokerUnavailableError(
        "Redis does not answer at 127.0.0.1:6390. Start it again; the page retries by itself."
    )


def application(stack: FakeStack) -> FastAPI:
    """The real pages over the fakes."""
    return with_pages(FastAPI(), stack.parts, (CHECKPOINT,))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=7870)
    uvicorn.run(application(FakeStack()), port=parser.parse_args().port, log_level="warning")
