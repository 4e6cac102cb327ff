"""The small decisions of an attempt."""

import pytest

from models.errors import (
    CheckpointBrokenError,
    DeviceMemoryError,
    NumericalError,
    PromptError,
    SettingError,
)
from models.events import StopReason
from workers.attempt import stop_for
from workers.parts import Loading, Waits


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
