"""What the host computes between steps: on the device thread, piece by piece, with runs going on meanwhile."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError, Future
from itertools import pairwise

import pytest

from models.errors import NumericalError
from models.events import Ended
from models.sampling import Settings
from tests.fakes.engine import FakeEngine
from tests.fakes.services import wait_until
from workers.engine.engine import Output, Request
from workers.host import EngineHost

Start = Callable[[FakeEngine], EngineHost]


@pytest.fixture
def failures() -> list[str]:
    return []


@pytest.fixture
def start(failures: list[str]) -> Iterator[Start]:
    hosts: list[EngineHost] = []

    def build(engine: FakeEngine) -> EngineHost:
        host = EngineHost(engine, watchdog_s=30, on_failure=failures.append)
        hosts.append(host)
        host.start()
        return host

    yield build
    for host in hosts:
        host.stop(1)


def counting(number: int, seen: list[int], look: Callable[[], int]) -> Generator[None, None, str]:
    """So many pieces, each of which notes what `look` gives."""
    for _ in range(number):
        seen.append(look())
        yield
    return threading.current_thread().name


def test_a_computation_is_carried_out_on_the_device_thread(start: Start) -> None:
    host = start(FakeEngine())
    assert host.compute(counting(3, [], lambda: 0)).result(60) == "device"


def test_every_piece_is_followed_by_a_step_of_those_that_run(start: Start) -> None:
    engine = FakeEngine(num_tokens=10_000)
    host = start(engine)
    host.submit(Request("a", (1,), Settings(seed=1)), lambda output: None)
    steps: list[int] = []
    host.compute(counting(20, steps, lambda: engine.num_steps)).result(60)
    assert [after - before for before, after in pairwise(steps)] == [1] * 19
    host.cancel("a")


def test_two_computations_take_turns(start: Start) -> None:
    host = start(FakeEngine())
    order: list[str] = []
    are_both_there = threading.Event()

    def named(name: str) -> Generator[None, None, None]:
        are_both_there.wait(60)
        for _ in range(3):
            order.append(name)
            yield

    both = [host.compute(named(name)) for name in "ab"]
    are_both_there.set()
    for future in both:
        future.result(60)
    # The first piece of `a` may have waited alone; the command that brings `b` is obeyed right after it.
    assert order == ["a", "b"] * 3


def test_what_goes_wrong_is_told_to_who_asked_and_nobody_else(start: Start, failures: list[str]) -> None:
    host = start(FakeEngine())

    def failing() -> Generator[None, None, None]:
        yield
        raise NumericalError("NaN")

    with pytest.raises(NumericalError, match="NaN"):
        host.compute(failing()).result(60)
    outputs: list[Output] = []
    host.submit(Request("a", (1,), Settings(seed=1)), outputs.append)
    wait_until(lambda: outputs and isinstance(outputs[-1].payload, Ended))
    assert failures == []


def test_a_fault_of_the_device_ends_the_worker(start: Start, failures: list[str]) -> None:
    host = start(FakeEngine())

    def failing() -> Generator[None, None, None]:
        yield
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    host.compute(failing())
    wait_until(lambda: failures)
    assert failures == ["the device thread failed"]


def test_one_that_nobody_waits_for_is_dropped_and_closed(start: Start) -> None:
    host = start(FakeEngine(before_step=lambda step: time.sleep(0.001)))
    has_begun, is_closed = threading.Event(), threading.Event()

    def endless() -> Generator[None, None, None]:
        try:
            while True:
                has_begun.set()
                yield
        finally:
            is_closed.set()

    future: Future[None] = host.compute(endless())
    assert has_begun.wait(60)
    assert future.cancel()
    assert is_closed.wait(60)
    with pytest.raises(CancelledError):
        future.result(1)
    assert host.compute(counting(1, [], lambda: 0)).result(60) == "device"  # the host is free again
