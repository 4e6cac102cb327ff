"""What the pages need from the rest of the program, as interfaces; the composition root hands over the real ones."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.branching import Fork
from app.chat_preview import ChatPreview
from app.family import Relative
from app.history import Comparison, RunFilter, RunPage
from app.overview import Snapshot
from app.record import ExperimentDetail, RunDetail
from app.run_changes import Discarded
from app.run_filter import NEWEST_FIRST, Sort
from models.chat import Chat
from models.events import Event
from models.examination import CacheCheck, Coverage, Influence, WhatIf
from models.presence import CheckpointInfo, WorkerPresence
from models.sampling import Settings


class ServingPart(Protocol):
    def workers(self) -> list[WorkerPresence]: ...
    def info(self, name: str) -> CheckpointInfo: ...
    def count_tokens(self, name: str, prompt: str, *, parse_special: bool = False) -> int | None: ...
    def preview_chat(self, name: str, chat: Chat) -> ChatPreview | None: ...


class SubmitterPart(Protocol):
    def submit(
        self,
        prompt: str | Chat,
        settings: Settings,
        *,
        checkpoint: str | None = None,
        given_text: str | None = None,
    ) -> str: ...
    def submit_comparison(
        self, prompt: str, arms: Sequence[Settings], *, checkpoint: str | None = None, seeds: int = 1
    ) -> tuple[str, list[str]]: ...
    def branch(self, parent: RunDetail, fork: Fork, *, max_tokens: int | None = None) -> str: ...
    def again(self, run: RunDetail) -> str: ...
    def cancel(self, run_id: str) -> None: ...


class FollowerPart(Protocol):
    def follow(self, run_id: str, after: int = -1) -> AsyncGenerator[Event, None]: ...


class HistoryPart(Protocol):
    def page(
        self,
        filters: RunFilter,
        *,
        sort: Sort = NEWEST_FIRST,
        before: str | None = None,
        limit: int = 50,
        is_grouped: bool = False,
    ) -> RunPage: ...
    def arms(self, experiment_id: str) -> RunPage: ...
    def lines(self, run_ids: Sequence[str]) -> RunPage: ...
    def star(self, run_ids: Sequence[str], experiment_ids: Sequence[str] = (), *, is_starred: bool) -> None: ...
    def add_tag(self, run_ids: Sequence[str], tag: str) -> None: ...
    def describe(
        self, item_id: str, *, of: str, title: str, note: str | None = None, tags: Sequence[str] | None = None
    ) -> None: ...
    def discard(self, run_ids: Sequence[str], experiment_ids: Sequence[str] = ()) -> Discarded: ...
    def restore(self, run_ids: Sequence[str], experiment_ids: Sequence[str] = ()) -> int: ...
    def purge(self) -> int: ...
    def run(self, run_id: str) -> RunDetail: ...
    def family(self, run_id: str) -> list[Relative]: ...
    def experiment(self, experiment_id: str) -> ExperimentDetail: ...
    def comparison(self, experiment_id: str) -> Comparison: ...


class OverviewPart(Protocol):
    def take(self) -> Snapshot: ...


class ExaminerPart(Protocol):
    async def influence(self, run_id: str) -> Influence: ...
    async def what_if(self, run_id: str, settings: Settings) -> WhatIf: ...
    async def coverage(self, run_id: str) -> Coverage: ...
    async def check_cache(self, run_id: str) -> CacheCheck: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts behind the pages."""

    serving: ServingPart
    submitter: SubmitterPart
    follower: FollowerPart
    history: HistoryPart
    overview: OverviewPart
    examiner: ExaminerPart
