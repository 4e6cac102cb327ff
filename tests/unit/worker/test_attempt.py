"""The small decisions of an attempt."""

from typing import Any

import pytest

from models.errors import (
    CheckpointBrokenError,
    DeviceMemoryError,
    NumericalError,
    PromptError,
    SettingError,
)
from models.events import Prefilled, StopReason
from models.sampling import Settings
from tests.fakes.engine_runs import drain
from tests.fakes.phrases import FOX, saying
from workers.attempt import request_for, stop_for
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine, Request
from workers.parts import Loading, Waits
from workers.record import Claim, Lease


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NumericalError("NaN"), StopReason.ERROR_NUMERICAL),
        (DeviceMemoryError("full"), StopReason.ERROR_OUT_OF_MEMORY),
        (MemoryError(), StopReason.ERROR_OUT_OF_MEMORY),
        (PromptError("too long"), StopReason.ERROR_CHECKPOINT),
        (SettingError("no such id"), StopReason.ERROR_CHECKPOINT),
        (CheckpointBrokenError("damaged"), StopReason.ERROR_CHECKPOINT),
        (KeyError("secret"), StopReason.ERROR_INTERNAL),
    ],
)
def test_every_error_has_its_ending_and_a_sentence(error: Exception, reason: StopReason) -> None:
    stop = stop_for(error)
    assert stop.reason == reason
    assert stop.message
    assert "secret" not in stop.message


@pytest.mark.parametrize(
    ("queued_s", "ready_s_ago", "waits"),
    [
        (1.0, 100.0, (1_000.0, 0.0)),  # came when the checkpoint was there
        (10.0, 2.0, (2_000.0, 8_000.0)),  # came while it was loading, 8 s before it was ready
        (60.0, 2.0, (40_000.0, 20_000.0)),  # came before the worker: the loading itself took 20 s
        (0.0, 0.0, (0.0, 0.0)),
    ],
)
def test_waiting_for_the_checkpoint_is_the_part_inside_its_loading(
    queued_s: float, ready_s_ago: float, waits: tuple[float, float]
) -> None:
    assert Loading(duration_s=20.0, ready_at=1000.0).waits(queued_s, 1000.0 + ready_s_ago) == Waits(*waits)


def asked_for(checkpoint: Checkpoint, run_id: str, *, user: str, max_tokens: int = 4, **columns: Any) -> Request:
    """What the engine is asked to do once the run is claimed."""
    settings = Settings(temperature=0.0, seed=1, max_tokens=max_tokens)
    claim = Claim(
        lease=Lease(run_id, 2, "worker"),
        checkpoint="scripted",
        prompt="the",
        settings=settings.as_dict(),
        user=user,
        is_cancel_requested=False,
        queued_s=0,
        running_s=0,
        ttft_ms=None,
        milestones=(),
        tokens=(),
        **columns,
    )
    prompt_ids = tuple(checkpoint.encode(claim.prompt))
    return request_for(claim, checkpoint, settings=settings, prompt_ids=prompt_ids, generated=())


@pytest.mark.parametrize("given_text", [None, " fox jumps"])
def test_the_engine_is_told_who_asks(given_text: str | None) -> None:
    request = asked_for(saying(FOX), "r", user="someone", given_text=given_text)
    assert (request.sequence_id, request.user) == ("r/2", "someone")
    assert (request.given is None) == (given_text is None)


def test_a_single_run_need_not_wait_for_all_arms_of_a_comparison() -> None:
    """Three rows, and every arm longer than the one before, so that rows get free one by one."""
    checkpoint = saying(FOX)
    engine = Engine(checkpoint, num_rows=3)
    for number in range(8):
        engine.add(asked_for(checkpoint, f"arm {number}", user="comparison", max_tokens=number + 1))
    engine.step()
    engine.add(asked_for(checkpoint, "single", user="single"))
    began = [output.sequence_id for output in drain(engine) if isinstance(output.payload, Prefilled)]
    assert began == ["single/2", *(f"arm {number}/2" for number in range(3, 8))]
