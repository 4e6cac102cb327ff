"""EngineHost over a fake engine: one thread, outputs to their owners, and never alive but idle."""

import queue
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from models.errors import PromptError, UnavailableError
from models.events import Ended, StopReason, TokenPicked
from models.sampling import Settings
from tests.fakes.engine import FakeEngine
from tests.fakes.services import wait_until
from workers.engine.engine import Output, Request
from workers.host import EngineHost

Start = Callable[..., EngineHost]


class Failures(list[str]):
    """What the host reported as the end of the worker."""


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def start(failures: Failures) -> Iterator[Start]:
    hosts: list[EngineHost] = []

    def build(engine: FakeEngine, watchdog_s: float = 30, **hooks: Callable[[], None]) -> EngineHost:
        host = EngineHost(engine, watchdog_s=watchdog_s, on_failure=failures.append, **hooks)
        hosts.append(host)
        host.start()
        return host

    yield build
    for host in hosts:
        host.stop(1)


def request(sequence_id: str) -> Request:
    return Request(sequence_id, (1, 2, 3), Settings(seed=1))


def outputs_until_end(inbox: "queue.SimpleQueue[Output]") -> list[Output]:
    outputs = []
    while not outputs or not isinstance(outputs[-1].payload, Ended):
        outputs.append(inbox.get(timeout=60))
    return outputs


def test_each_listener_gets_the_outputs_of_its_own_sequence(start: Start) -> None:
    host = start(FakeEngine(num_tokens=5))
    inboxes = {name: queue.SimpleQueue() for name in "abc"}
    for name, inbox in inboxes.items():
        host.submit(request(name), inbox.put)
    for name, inbox in inboxes.items():
        outputs = outputs_until_end(inbox)
        assert {output.sequence_id for output in outputs} == {name}
        assert [o.payload.position for o in outputs if isinstance(o.payload, TokenPicked)] == [0, 1, 2, 3, 4]
    assert host.num_active == 0


def test_only_the_device_thread_touches_the_engine(start: Start) -> None:
    engine = FakeEngine(before_step=lambda step: time.sleep(0.005), num_tokens=1000)
    host = start(engine)
    host.submit(request("a"), lambda output: None)
    host.cancel("a")
    wait_until(lambda: host.num_active == 0)
    assert engine.threads == {"device"}


def test_a_refused_sequence_is_told_to_its_submitter_and_to_nobody_else(start: Start, failures: Failures) -> None:
    engine = FakeEngine()
    host = start(engine)
    for refusal in (PromptError("too long"), ValueError("a bug"), MemoryError()):
        engine.refuse = refusal
        with pytest.raises(type(refusal)):
            host.submit(request("refused"), lambda output: None)
    engine.refuse = None
    inbox: queue.SimpleQueue[Output] = queue.SimpleQueue()
    host.submit(request("next"), inbox.put)
    assert outputs_until_end(inbox)
    assert not failures


def test_cancel_ends_with_its_reason_and_discard_in_silence(start: Start) -> None:
    host = start(FakeEngine(num_tokens=10_000, before_step=lambda step: time.sleep(0.001)))
    cancelled: queue.SimpleQueue[Output] = queue.SimpleQueue()
    discarded: list[Output] = []
    host.submit(request("cancelled"), cancelled.put)
    host.submit(request("discarded"), discarded.append)
    host.discard("discarded")
    host.cancel("cancelled", StopReason.TIME_LIMIT)
    last = outputs_until_end(cancelled)[-1].payload
    assert isinstance(last, Ended)
    assert last.stop.reason == StopReason.TIME_LIMIT
    wait_until(lambda: host.num_active == 0)
    assert not any(isinstance(output.payload, Ended) for output in discarded)


def test_cancelling_what_is_not_there_does_nothing(start: Start, failures: Failures) -> None:
    host = start(FakeEngine())
    host.cancel("nobody")
    host.discard("nobody")
    inbox: queue.SimpleQueue[Output] = queue.SimpleQueue()
    host.submit(request("a"), inbox.put)
    assert outputs_until_end(inbox)
    host.cancel("a")
    assert not failures


def test_an_exception_in_the_step_ends_the_worker(start: Start, failures: Failures) -> None:
    def fail(step: int) -> None:
        if step == 2:
            raise RuntimeError("the device is gone")

    host = start(FakeEngine(before_step=fail))
    host.submit(request("a"), lambda output: None)
    wait_until(lambda: failures)
    assert failures == ["the device thread failed"]


def test_a_step_that_does_not_return_ends_the_worker(start: Start, failures: Failures) -> None:
    returns = threading.Event()
    host = start(FakeEngine(before_step=lambda step: returns.wait(10) and None), watchdog_s=0.4)
    host.submit(request("a"), lambda output: None)
    wait_until(lambda: failures)
    assert failures == ["no step of the device has ended for 0.4 s"]
    returns.set()


def test_the_watchdog_is_patient_with_an_idle_device_and_with_many_short_steps(
    start: Start, failures: Failures
) -> None:
    host = start(FakeEngine(num_tokens=100, before_step=lambda step: time.sleep(0.01)), watchdog_s=0.4)
    time.sleep(0.8)
    inbox: queue.SimpleQueue[Output] = queue.SimpleQueue()
    host.submit(request("a"), inbox.put)
    assert len(outputs_until_end(inbox)) == 102
    time.sleep(0.6)
    assert not failures


def test_a_stopped_host_takes_no_more(start: Start) -> None:
    host = start(FakeEngine())
    host.stop()
    with pytest.raises(UnavailableError, match="takes no more runs"):
        host.submit(request("late"), lambda output: None)


def test_its_hooks_are_called_after_outputs_and_when_there_is_nothing_to_do(start: Start) -> None:
    called: queue.SimpleQueue[str] = queue.SimpleQueue()
    host = start(
        FakeEngine(num_tokens=2), after_outputs=lambda: called.put("outputs"), on_idle=lambda: called.put("idle")
    )
    assert called.get(timeout=60) == "idle", "nothing to do from the beginning"
    for name in "ab":
        inbox: queue.SimpleQueue[Output] = queue.SimpleQueue()
        host.submit(request(name), inbox.put)
        num_outputs = len(outputs_until_end(inbox))
        assert [called.get(timeout=60) for _ in range(num_outputs)] == ["outputs"] * num_outputs
    assert called.empty(), "idle again, but too soon"
