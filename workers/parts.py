"""What every attempt of a worker works with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from models.chat import Chat
from models.presence import CheckpointInfo
from workers.engine.chat import ChatPrompt
from workers.host import EngineHost
from workers.leases import LeaseKeeper
from workers.publisher import Publisher
from workers.recovery import Recovery
from workers.store import Store


class Encoder(Protocol):
    """What a run needs of a checkpoint besides the engine; `workers.engine.checkpoint.Checkpoint` is the real one."""

    @property
    def info(self) -> CheckpointInfo: ...
    def encode(self, prompt: str, *, parse_special: bool = False, continues: bool = False) -> tuple[int, ...]: ...
    def encode_chat(self, chat: Chat) -> ChatPrompt: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run."""

    time_limit_s: float
    flush_every_s: float
    flush_tokens: int


@dataclass(frozen=True, slots=True)
class Waits:
    """A run's time before its claim, in two parts that do not overlap."""

    queue_ms: float
    load_ms: float


@dataclass(frozen=True, slots=True)
class Loading:
    """When the checkpoint was loaded, so that a run can say how much of its waiting was for that."""

    duration_s: float
    ready_at: float  # monotonic

    def waits(self, queued_s: float, now: float) -> Waits:
        """What a run waited for in the `queued_s` that ended at `now`: the part inside the loading, and the rest."""
        before_ready_s = max(0.0, queued_s - max(0.0, now - self.ready_at))
        load_s = min(before_ready_s, self.duration_s)
        return Waits(queue_ms=round(1000 * (queued_s - load_s), 3), load_ms=round(1000 * load_s, 3))


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
