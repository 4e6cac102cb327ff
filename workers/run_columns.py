"""The columns of `runs` that follow from what a run has told."""

from typing import Any

import orjson

from models.db.base import database_now
from models.events import Ended, Prefilled, Started, to_json
from workers.record import Batch


def progress(batch: Batch) -> dict[str, Any]:
    """Of a run that goes on."""
    changes: dict[str, Any] = {"num_tokens": batch.num_tokens, "ttft_ms": batch.ttft_ms}
    for event in batch.milestones or ():
        if isinstance(event.payload, Started):
            ids = event.payload.prompt_token_ids
            changes |= {"prompt_token_ids": list(ids), "num_prompt_tokens": len(ids)}
        if isinstance(event.payload, Prefilled):
            changes["kv_bytes"] = event.payload.kv_bytes
    if batch.milestones is not None:
        changes["milestones"] = [orjson.loads(event.encode()) for event in batch.milestones]
    return changes


def ending(batch: Batch) -> dict[str, Any]:
    """Of one that ends with this batch. Raises ValueError for one without an ending."""
    ended = _ended_of(batch)
    return {
        "status": ended.status,
        "ended_at": database_now(),
        "lease_owner": None,
        "lease_until": None,
        "stop_reason": ended.stop.reason,
        "stop": to_json(ended.stop),
        "num_tokens": ended.num_tokens,
        "ttft_ms": ended.timing.ttft_ms,
        "tokens_per_s": ended.timing.tokens_per_s,
        "timing": to_json(ended.timing),
        "passes": to_json(ended.passes),
        "kv_positions": ended.kv_positions,
        "kv_bytes": ended.kv_bytes,
    }


def _ended_of(batch: Batch) -> Ended:
    if not batch.milestones or not isinstance(batch.milestones[-1].payload, Ended):
        raise ValueError("a run is finished with its `Ended` event only")
    return batch.milestones[-1].payload
