"""Runs built by hand: events as a worker would send them, for tests that need no worker."""

from collections.abc import Sequence
from typing import Any

from app.record import RunDetail
from app.run_json import from_events
from models.events import (
    Candidate,
    Ended,
    Event,
    Others,
    Passes,
    Prefilled,
    Started,
    StopReason,
    StopRecord,
    Timing,
    TokenPicked,
)
from models.sampling import Settings


def candidate(token_id: int, raw: float | None, processed: float | None, **changes: Any) -> Candidate:
    values = {"piece": f"<{token_id}>", "removed_by": None, "penalty": 0.0, "noise": None, **changes}
    return Candidate(token_id=token_id, raw_logprob=raw, logprob=processed, **values)


def token(position: int, token_id: int, *, text: str | None = None, **changes: Any) -> TokenPicked:
    piece = f"w{token_id} " if text is None else text
    values: dict[str, Any] = {
        "piece": piece,
        "token_bytes": piece.encode(),
        "text": piece,
        "visible": True,
        "withheld": False,
        "raw_logprob": -0.5,
        "logprob": -0.25,
        "rank": 1,
        "rank_processed": 1,
        "entropy": 1.25,
        "entropy_processed": 1.0,
        "kept": {"top_p": 3},
        "removed_mass": {"top_p": 0.05},
        "candidates": (candidate(token_id, -0.5, -0.25, piece=piece),),
        "others": Others(raw=0.393469, processed=0.221199),
        "elapsed_ms": 10.0 * (position + 1),
        **changes,
    }
    return TokenPicked(position=position, token_id=token_id, **values)


def ended(num_tokens: int, reason: StopReason = StopReason.MAX_TOKENS, **stop: Any) -> Ended:
    return Ended(
        status=reason.status,
        stop=StopRecord(reason=reason, **stop),
        tail="",
        num_tokens=num_tokens,
        passes=Passes(prefill=1, decode=max(0, num_tokens - 1), prompt_tokens_computed=2),
        kv_positions=2 + num_tokens,
        kv_bytes=4096,
        timing=Timing(queue_ms=1.5, ttft_ms=20.0, itl_ms={"p50": 1.0, "p95": 2.0, "p99": 3.0}),
    )


def events(run_id: str, tokens: Sequence[TokenPicked], reason: StopReason = StopReason.MAX_TOKENS) -> list[Event]:
    """The whole history of a run that one attempt brought to its end."""
    payloads = [
        Started("tiny", "cpu", "float32", (7, 8), queue_ms=1.5, load_ms=0.0),
        Prefilled(num_prompt_tokens=2, num_computed=2, num_passes=1, prefill_ms=5.0, kv_bytes=2048),
        *tokens,
        ended(len(tokens), reason),
    ]
    return [Event(run_id, 1, seq, payload) for seq, payload in enumerate(payloads)]


def detail(tokens: Sequence[TokenPicked], *, run_id: str = "run-1", settings: Settings | None = None) -> RunDetail:
    settings = settings or Settings(seed=1)
    return from_events(run_id, "two words", settings, checkpoint="tiny", events=events(run_id, tokens))
