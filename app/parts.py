"""What the pages need from the rest of the program, as interfaces; the composition root hands over the real ones."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.history import RunFilter, RunPage
from app.record import ExperimentDetail, RunDetail
from models.events import Event
from models.presence import CheckpointInfo, WorkerPresence
from models.sampling import Settings


class ServingPart(Protocol):
    def workers(self) -> list[WorkerPresence]: ...
    def info(self, name: str) -> CheckpointInfo: ...
    def count_tokens(self, name: str, prompt: str, *, parse_special: bool = False) -> int | None: ...


class SubmitterPart(Protocol):
    def submit(self, prompt: str, settings: Settings, *, checkpoint: str | None = None) -> str: ...
    def submit_comparison(
        self, prompt: str, arms: Sequence[Settings], *, checkpoint: str | None = None
    ) -> tuple[str, list[str]]: ...
    def cancel(self, run_id: str) -> None: ...


class FollowerPart(Protocol):
    def follow(self, run_id: str, after: int = -1) -> AsyncGenerator[Event, None]: ...


class HistoryPart(Protocol):
    def page(self, filters: RunFilter, *, before: str | None = None, limit: int = 50) -> RunPage: ...
    def run(self, run_id: str) -> RunDetail: ...
    def experiment(self, experiment_id: str) -> ExperimentDetail: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The four parts behind the pages."""

    serving: ServingPart
    submitter: SubmitterPart
    follower: FollowerPart
    history: HistoryPart
