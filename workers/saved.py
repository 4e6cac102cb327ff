"""A run's saved history, as far as it can be read without a gap."""

from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from models.db.ledger import DAMAGE, token_event
from models.db.runs import Token
from models.events import Ended, Event, TokenPicked


@dataclass(frozen=True, slots=True)
class SavedHistory:
    """The events before the first that is missing or cannot be read; `damage` is a sentence where there is one."""

    milestones: tuple[Event, ...]
    tokens: tuple[Event, ...]
    damage: str | None


def read_history(milestones: str, tokens: Iterable[Token]) -> SavedHistory:
    """Read a row's `milestones` as the database holds them, and its token rows in the order of their positions.

    The run has not ended, so an `ended` among its events is damage as well.
    """
    found, num_unread = _read(milestones, tokens)
    found.sort(key=lambda event: event.seq)
    whole: list[Event] = []
    num_tokens = 0
    for event in found:
        if event.seq != len(whole) or not _is_due(event, num_tokens):
            break
        whole.append(event)
        num_tokens += isinstance(event.payload, TokenPicked)
    damage = None
    if num_unread or len(whole) < len(found):
        damage = (
            f"The saved history of this run is damaged after event {len(whole)}; what comes before is kept. "
            "Start the run again."
        )
    return SavedHistory(
        milestones=tuple(event for event in whole if not isinstance(event.payload, TokenPicked)),
        tokens=tuple(event for event in whole if isinstance(event.payload, TokenPicked)),
        damage=damage,
    )


def _read(milestones: str, tokens: Iterable[Token]) -> tuple[list[Event], int]:
    """The events that can be read, and the number of those that cannot."""
    events: list[Event] = []
    num_unread = 0
    try:
        values = orjson.loads(milestones)
    except ValueError:
        values = None
    if not isinstance(values, list):
        values, num_unread = [], 1
    for value in values:
        try:
            events.append(Event.decode(orjson.dumps(value)))
        except DAMAGE:
            num_unread += 1
    for row in tokens:
        try:
            events.append(token_event(row))
        except DAMAGE:
            num_unread += 1
    return events, num_unread


def _is_due(event: Event, num_tokens: int) -> bool:
    match event.payload:
        case TokenPicked(position=position):
            return position == num_tokens
        case Ended():
            return False
        case _:
            return True
