"""Rows as the page saves them."""

from typing import Any

import uuid_utils

from models.db.base import database_now
from models.db.runs import Run
from models.events import Status
from models.sampling import Settings

CHECKPOINT = "scripted"


def new_id() -> str:
    """A UUIDv7, as of a row that is made now."""
    return str(uuid_utils.uuid7())


def new_run(*, settings: Settings | None = None, **columns: Any) -> Run:
    """A queued run; `columns` override what a submit writes."""
    settings = settings or Settings(seed=1)
    values: dict[str, Any] = {
        "id": new_id(),
        "created_at": database_now(),
        "enqueued_at": database_now(),
        "checkpoint": CHECKPOINT,
        "prompt": "tell me",
        "settings": settings.as_dict(),
        "seed": str(settings.seed),
        "status": Status.QUEUED.value,
        **columns,
    }
    return Run(**values)
