"""What every attempt of a worker works with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from models.presence import CheckpointInfo
from workers.host import EngineHost
from workers.leases import LeaseKeeper
from workers.publisher import Publisher
from workers.recovery import Recovery
from workers.store import Store


class Encoder(Protocol):
    """What a run needs of a checkpoint besides the engine; `workers.engine.checkpoint.Checkpoint` is the real one."""

    @property
    def info(self) -> CheckpointInfo: ...
    def encode(self, prompt: str, *, parse_special: bool = False) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run."""

    time_limit_s: float
    flush_every_s: float
    flush_tokens: int


@dataclass(frozen=True, slots=True)
class Loading:
    """When the checkpoint was loaded, so that a run can say how much of its waiting was for that."""

    duration_s: float
    ready_at: float  # monotonic

    def waited_ms(self, queued_s: float, now: float) -> float:
        """The part of `queued_s`, which ended at `now`, that lies inside the loading."""
        before_ready_s = max(0.0, queued_s - max(0.0, now - self.ready_at))
        return round(1000 * min(before_ready_s, self.duration_s), 3)


@dataclass(frozen=True, slots=True)
class Parts:
    """One of each, shared by all attempts."""

    checkpoint: Encoder
    store: Store
    publisher: Publisher
    host: EngineHost
    leases: LeaseKeeper
    recovery: Recovery
    limits: Limits
    loading: Loading
    enqueue: Callable[[str, str], None]  # (run id, checkpoint): send the run's message again
