"""End a run that waits in the queue and has never been claimed: no worker need be alive for that."""

import orjson
from sqlalchemy import update
from sqlalchemy.orm import Session

from models.db.base import database_now
from models.db.runs import Run
from models.events import Ended, Event, Passes, Status, StopReason, StopRecord, to_json


def end_unclaimed(session: Session, run_id: str) -> bool:
    """Set the run to `cancelled` with its one `Ended` event, unless a worker has ever claimed it; says whether it did.

    The event is published by a worker's sweeper; readers find it in the database at once.
    """
    stop = StopRecord(reason=StopReason.CANCELLED)
    ended = Ended(
        status=Status.CANCELLED, stop=stop, tail="", num_tokens=0, passes=Passes(), kv_positions=0, kv_bytes=0
    )
    event = Event(run_id, attempt=0, seq=0, payload=ended)
    changed = session.execute(
        update(Run)
        .where(Run.id == run_id, Run.status == Status.QUEUED.value, Run.attempt == 0)
        .values(
            status=ended.status.value,
            ended_at=database_now(),
            cancel_requested=True,
            stop_reason=stop.reason.value,
            stop=to_json(stop),
            timing=to_json(ended.timing),
            passes=to_json(ended.passes),
            kv_positions=0,
            kv_bytes=0,
            milestones=[orjson.loads(event.encode())],
        )
        .returning(Run.id)
        .execution_options(synchronize_session=False)
    )
    return changed.first() is not None
