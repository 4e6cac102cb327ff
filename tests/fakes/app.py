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

from app.history import RunFilter, RunPage, RunSummary
from app.main import with_pages
from app.parts import Parts
from app.record import ExperimentDetail, RunDetail, text_of
from models.errors import (
    BrokerUnavailableError,
    DecodeLabError,
    NotFoundError,
    NoWorkerError,
    PromptError,
    UnknownCheckpointError,
)
from models.events import (
    Ended,
    Event,
    NearMiss,
    Passes,
    Payload,
    Prefilled,
    RunKind,
    Started,
    Status,
    StopReason,
    StopRecord,
    Timing,
    TokenPicked,
)
from models.presence import CheckpointInfo, WorkerPresence
from models.sampling import Settings
from tests.fakes.scripted_runs import CHECKPOINT, TEXT, FakeRun, checkpoint_info, pieces_of, token


class FakeStack:
    """Serving, Submitter, Follower and History in one object; `failures` makes a call raise."""

    def __init__(self, *, text: str = TEXT, token_s: float = 0.03, queue_s: float = 0.2) -> None:
        self.text = text
        self.token_s = token_s
        self.queue_s = queue_s
        self.runs: dict[str, FakeRun] = {}
        self.experiments: dict[str, list[str]] = {}
        self.num_readers = 0
        self.deaf_s = 0.0  # a cancelled run goes on for so long
        self.failures: dict[str, DecodeLabError] = {}
        self.tail: list[TokenPicked] | None = None  # tokens to tell instead of those of `text`
        self._ids = itertools.count(1)

    @property
    def parts(self) -> Parts:
        return Parts(self, self, self, self)

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

    # Submitter

    def submit(self, prompt: str, settings: Settings, *, checkpoint: str | None = None) -> str:
        self._fail("submit")
        if not prompt:
            raise PromptError("The prompt is empty. Type the text that the checkpoint is to continue.")
        return self._add(prompt, settings, 0).id

    def submit_comparison(
        self, prompt: str, arms: Sequence[Settings], *, checkpoint: str | None = None
    ) -> tuple[str, list[str]]:
        self._fail("submit")
        experiment_id = f"experiment-{next(self._ids)}"
        runs = [self._add(prompt, settings, i) for i, settings in enumerate(arms)]
        for i, run in enumerate(runs):
            run.experiment_id, run.arm_index = experiment_id, i
        self.experiments[experiment_id] = [run.id for run in runs]
        return experiment_id, self.experiments[experiment_id]

    def cancel(self, run_id: str) -> None:
        self._fail("cancel")
        threading.Timer(self.deaf_s, self._run(run_id).cancel).start()

    # Follower

    async def follow(self, run_id: str, after: int = -1) -> AsyncIterator[Event]:
        self.num_readers += 1
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
            self.num_readers -= 1

    # History

    def page(self, filters: RunFilter, *, before: str | None = None, limit: int = 50) -> RunPage:
        self._fail("page")
        rows = [self._summary(run) for run in reversed(self.runs.values())]
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
        )

    def experiment(self, experiment_id: str) -> ExperimentDetail:
        if experiment_id not in self.experiments:
            raise NotFoundError(f"There is no comparison {experiment_id}.", field="id")
        arms = [self.run(run_id) for run_id in self.experiments[experiment_id]]
        return ExperimentDetail(experiment_id, datetime.now(UTC), CHECKPOINT, arms[0].prompt, 0, None, None, arms)

    # Inside

    def _fail(self, call: str) -> None:
        if call in self.failures:
            raise self.failures[call]

    def _run(self, run_id: str) -> FakeRun:
        if run_id not in self.runs:
            raise NotFoundError(f"There is no run {run_id}.", field="id")
        return self.runs[run_id]

    def _add(self, prompt: str, settings: Settings, arm: int) -> FakeRun:
        number = next(self._ids)
        run = FakeRun(
            id=f"run-{number:04d}",
            prompt=prompt,
            settings=settings,
            checkpoint=CHECKPOINT,
            payloads=list(self._payloads(prompt, settings, arm)),
            started=time.monotonic(),
            token_s=self.token_s,
            queue_s=self.queue_s,
        )
        self.runs[run.id] = run
        return run

    def _payloads(self, prompt: str, settings: Settings, arm: int) -> list[Payload]:
        text = self.text if arm == 0 else self.text.replace("art", "gardens" if arm == 1 else "light", 1)
        tokens = self.tail or [
            token(i, piece, temperature=settings.temperature) for i, piece in enumerate(pieces_of(text))
        ]
        tokens = tokens[: settings.max_tokens]
        num_prompt = len(pieces_of(prompt))
        is_whole = len(tokens) < settings.max_tokens
        if is_whole:
            end = token(len(tokens), "<|im_end|>", visible=False, text="", token_bytes=b"<|im_end|>")
            tokens = [*tokens, end]
        info = checkpoint_info()
        stop = StopRecord(
            StopReason.EOS if is_whole else StopReason.MAX_TOKENS,
            token_id=2 if is_whole else None,
            misses=tuple(NearMiss(s, max(1, len(s) - 1), 21) for s in settings.stop),
        )
        number = len(tokens)
        timing = Timing(8.0, 0.0, 34.5, number * 41.0, 51.2, 24.1, {"p50": 41.0, "p95": 47.2, "p99": 48.0})
        return [
            Started(CHECKPOINT, "cpu", "float32", tuple(range(num_prompt)), 8.0, 0.0),
            Prefilled(num_prompt, num_prompt, 1, 34.5, info.kv_bytes(num_prompt)),
            *tokens,
            Ended(
                Status.FINISHED,
                stop,
                "",
                number,
                Passes(1, number - 1, num_prompt),
                num_prompt + number - 1,
                info.kv_bytes(num_prompt + number - 1),
                timing,
            ),
        ]

    def _summary(self, run: FakeRun) -> RunSummary:
        events = run.events()
        tokens = [e.payload for e in events if isinstance(e.payload, TokenPicked)]
        ended = next((e.payload for e in events if isinstance(e.payload, Ended)), None)
        mean = sum(t.raw_logprob for t in tokens) / len(tokens) if tokens else None
        return RunSummary(
            id=run.id,
            kind=RunKind.GENERATE,
            created_at=run.created_at,
            checkpoint=run.checkpoint,
            prompt_start=run.prompt[:160],
            text_start=text_of(events)[:160],
            changed=run.settings.changed(),
            seed=run.settings.seed or 0,
            status=ended.status if ended else Status.RUNNING,
            stop_reason=ended.stop.reason if ended else None,
            num_tokens=len(tokens),
            mean_logprob=mean,
            tokens_per_s=24.1 if ended else None,
            experiment_id=run.experiment_id,
            arm_index=run.arm_index,
            parent_id=None,
            title=None,
            is_starred=False,
            tags=(),
        )


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
