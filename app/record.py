"""One run as the database holds it: its facts, and its events exactly as they were sent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from models.beams import BeamsTraced
from models.db.ledger import DAMAGE, token_event
from models.db.runs import Run, Token
from models.errors import DecodeLabError, EventError, SettingError
from models.events import Ended, Event, Prefilled, RunKind, Started, Status, StopRecord, TokenPicked, from_json
from models.sampling import Settings

_FIELDS: Final = frozenset(Settings.model_fields)


@dataclass(frozen=True, slots=True)
class RunDetail:
    """One run with everything that is shown for it."""

    id: str
    status: Status
    created_at: datetime | None  # None for a run that was never saved (`--local`)
    started_at: datetime | None
    ended_at: datetime | None
    enqueued_at: datetime | None  # None: saved, and waits to be sent to the queue
    checkpoint: str
    prompt: str
    settings: Settings
    text: str
    events: tuple[Event, ...]
    given_text: str | None = None  # of a run that scores it
    messages: list[Any] | None = None  # of a chat; `prompt` is then what they say
    stop: StopRecord | None = None
    checkpoint_revision: str | None = None
    weights_digest: str | None = None
    experiment_id: str | None = None
    arm_index: int | None = None
    sample_index: int | None = None
    parent_id: str | None = None
    fork_position: int | None = None
    opening_ids: tuple[int, ...] = ()  # of a branch: the tokens that its output begins with
    cancel_requested: bool = False
    capsule: dict[str, Any] | None = None
    title: str | None = None
    note: str | None = None
    is_starred: bool = False
    tags: tuple[str, ...] = ()

    @property
    def kind(self) -> RunKind:
        return RunKind.GENERATE if self.given_text is None else RunKind.SCORE

    @property
    def tokens(self) -> tuple[TokenPicked, ...]:
        return tuple(e.payload for e in self.events if isinstance(e.payload, TokenPicked))

    @property
    def started(self) -> Started | None:
        return next((e.payload for e in self.events if isinstance(e.payload, Started)), None)

    @property
    def prefilled(self) -> Prefilled | None:
        return next((e.payload for e in self.events if isinstance(e.payload, Prefilled)), None)

    @property
    def beams(self) -> BeamsTraced | None:
        """The lineage of a beam search."""
        return next((e.payload for e in self.events if isinstance(e.payload, BeamsTraced)), None)

    @property
    def ended(self) -> Ended | None:
        return next((e.payload for e in reversed(self.events) if isinstance(e.payload, Ended)), None)


@dataclass(frozen=True, slots=True)
class ExperimentDetail:
    """A comparison with its arms, by arm and sample index."""

    id: str
    created_at: datetime
    checkpoint: str
    prompt: str
    baseline_index: int
    title: str | None
    note: str | None
    arms: list[RunDetail]


def detail(run: Run, events: Sequence[Event]) -> RunDetail:
    """The facts of a row together with the events that were read for it."""
    return RunDetail(
        id=run.id,
        status=Status(run.status),
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        enqueued_at=run.enqueued_at,
        checkpoint=run.checkpoint,
        prompt=run.prompt,
        settings=saved_settings(run),
        given_text=run.given_text,
        text=run.text if Status(run.status).is_terminal else text_of(events),
        events=tuple(events),
        messages=run.messages,
        stop=None if run.stop is None else from_json(StopRecord, run.stop),
        checkpoint_revision=run.checkpoint_revision,
        weights_digest=run.weights_digest,
        experiment_id=run.experiment_id,
        arm_index=run.arm_index,
        sample_index=run.sample_index,
        parent_id=run.parent_id,
        fork_position=run.fork_position,
        opening_ids=tuple(run.opening_ids or ()),
        cancel_requested=run.cancel_requested,
        capsule=run.capsule,
        title=run.title,
        note=run.note,
        is_starred=run.is_starred,
        tags=tuple(run.tags),
    )


def text_of(events: Sequence[Event]) -> str:
    """The run's text as its events carry it: the tokens' texts joined, then the tail."""
    parts = [e.payload.text for e in events if isinstance(e.payload, TokenPicked)]
    tails = [e.payload.tail for e in events if isinstance(e.payload, Ended)]
    return "".join(parts + tails)


def saved_events(session: Session, run: Run, *, from_seq: int = 0, limit: int | None = None) -> list[Event]:
    """The saved events of `run` with `seq` >= `from_seq`, in order, up to the first that is not saved yet.

    They equal what was sent: the milestones hold every event but the tokens, the token rows the others.
    Raises DecodeLabError where they cannot be read.
    """
    query = select(Token).where(Token.run_id == run.id, Token.seq >= from_seq).order_by(Token.seq).limit(limit)
    try:
        events = [token_event(row) for row in session.scalars(query)]
        milestones = [Event.decode(orjson.dumps(values)) for values in run.milestones]
    except EventError as exc:
        raise DecodeLabError(f"The saved events of run {run.id} cannot be shown. {exc.message}") from exc
    except DAMAGE as exc:
        raise DecodeLabError(f"The saved events of run {run.id} are damaged and cannot be shown.") from exc
    events += [event for event in milestones if event.seq >= from_seq]
    events.sort(key=lambda event: event.seq)
    return list(_without_gap(events, from_seq))


def _without_gap(events: Sequence[Event], from_seq: int) -> Iterator[Event]:
    for expected, event in enumerate(events, start=from_seq):
        if event.seq != expected:
            return
        yield event


def saved_settings(run: Run) -> Settings:
    """The saved settings; what another version had saved and this one cannot have is left out.

    One such row must not close the whole history.
    """
    values = {k: v for k, v in run.settings.items() if k in _FIELDS}
    while True:
        try:
            return Settings.parse(values)
        except SettingError as exc:
            if exc.field not in values:
                raise
            del values[exc.field]
