"""An engine without a network: the same interface as the real one, told what to say at each step."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from models.events import Ended, StopReason
from tests.fakes.events import ended, prefilled, token
from workers.engine.engine import Output, Request


@dataclass
class FakeEngine:
    """Gives each sequence `num_tokens` tokens, one a step. `before_step` may wait or raise."""

    num_tokens: int = 3
    before_step: Callable[[int], None] = lambda step: None
    refuse: Exception | None = None
    num_steps: int = 0
    threads: set[str] = field(default_factory=set)
    _said: dict[str, int] = field(default_factory=dict)
    _cancelled: dict[str, StopReason] = field(default_factory=dict)

    def add(self, request: Request) -> None:
        self.threads.add(threading.current_thread().name)
        if self.refuse is not None:
            raise self.refuse
        self._said[request.sequence_id] = len(request.generated) - 1

    def cancel(self, sequence_id: str, reason: StopReason = StopReason.CANCELLED) -> None:
        self.threads.add(threading.current_thread().name)
        if sequence_id in self._said:
            self._cancelled[sequence_id] = reason

    def step(self) -> list[Output]:
        self.threads.add(threading.current_thread().name)
        self.before_step(self.num_steps)
        self.num_steps += 1
        return [self._advance(sequence_id) for sequence_id in list(self._said)]

    @property
    def has_work(self) -> bool:
        return bool(self._said)

    def _advance(self, sequence_id: str) -> Output:
        reason = self._cancelled.pop(sequence_id, None)
        said = self._said[sequence_id]
        if reason is not None:
            return Output(sequence_id, self._end(sequence_id, reason))
        if said == self.num_tokens:
            return Output(sequence_id, self._end(sequence_id, StopReason.MAX_TOKENS))
        self._said[sequence_id] += 1
        return Output(sequence_id, prefilled() if said < 0 else token(said))

    def _end(self, sequence_id: str, reason: StopReason) -> Ended:
        return ended(reason, num_tokens=max(0, self._said.pop(sequence_id)))
