"""Events with plausible numbers, for tests that do not care which."""

from typing import Any

from models.beams import BeamStep, BeamsTraced, PrunedBeam, TracedBeam
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


def started(**changes: Any) -> Started:
    values: dict[str, Any] = {
        "checkpoint": "scripted",
        "device": "cpu",
        "dtype": "float32",
        "prompt_token_ids": (5, 6, 7),
        "queue_ms": 12.5,
        "load_ms": 0.0,
    }
    return Started(**{**values, **changes})


def prefilled(**changes: Any) -> Prefilled:
    values: dict[str, Any] = {
        "num_prompt_tokens": 3,
        "num_computed": 3,
        "num_passes": 1,
        "prefill_ms": 1.25,
        "kv_bytes": 24,
    }
    return Prefilled(**{**values, **changes})


def token(position: int, **changes: Any) -> TokenPicked:
    values: dict[str, Any] = {
        "position": position,
        "token_id": 100 + position,
        "piece": f" t{position}",
        "token_bytes": f" t{position}".encode(),
        "text": f" t{position}",
        "visible": True,
        "withheld": False,
        "raw_logprob": -0.125 * (position + 1),
        "logprob": -0.1,
        "rank": 1 + position % 3,
        "rank_processed": 1,
        "entropy": 1.5,
        "entropy_processed": 1.25,
        "kept": {"top_k": 40},
        "removed_mass": {"top_k": 0.012345},
        "candidates": (
            Candidate(100 + position, f" t{position}", -0.125, -0.1, None, 0.0, 0.25),
            Candidate(7, "\x00\N{GRINNING FACE}", -2.5, None, "top_k", -1.5, None),
        ),
        "others": Others(0.25, 0.0),
        "elapsed_ms": 10.0 * position,
    }
    return TokenPicked(**{**values, **changes})


def beams(**changes: Any) -> BeamsTraced:
    step = BeamStep(
        beams=(TracedBeam(0, 100, -0.25, -0.25), TracedBeam(0, 7, -1.5, -1.5)),
        finished=(TracedBeam(0, 2, -0.75, -0.75),),
        pruned=(PrunedBeam(0, 9, 0.125),),
    )
    values: dict[str, Any] = {
        "num_beams": 2,
        "sequence_score": -0.75,
        "beam_indices": (0, 0, 1),
        "num_steps": 1,
        "steps": (step,),
    }
    return BeamsTraced(**{**values, **changes})


def ended(reason: StopReason = StopReason.MAX_TOKENS, **changes: Any) -> Ended:
    values: dict[str, Any] = {
        "status": reason.status,
        "stop": StopRecord(reason),
        "tail": "",
        "num_tokens": 3,
        "passes": Passes(1, 2, 3),
        "kv_positions": 5,
        "kv_bytes": 40,
        "timing": Timing(decode_ms=20.0, tokens_per_s=100.0),
    }
    return Ended(**{**values, **changes})


def token_event(run_id: str, seq: int, *, attempt: int = 1) -> Event:
    """The event of an uninterrupted run whose first token has number 2."""
    return Event(run_id, attempt, seq, token(seq - 2))


def history(run_id: str, num_tokens: int, *, attempt: int = 1) -> list[Event]:
    """Started, prefilled and `num_tokens` tokens."""
    payloads = [started(), prefilled(), *(token(position) for position in range(num_tokens))]
    return [Event(run_id, attempt, seq, payload) for seq, payload in enumerate(payloads)]
