"""Computing threads step back, and nobody else does."""

import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fakes.engine import FakeEngine
from workers.host import EngineHost
from workers.priority import LOWEST, step_back


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def in_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(priority).result()


@pytest.mark.parametrize(("steps", "lower"), [(0, 0), (3, 3), (40, LOWEST)])
def test_a_thread_and_those_it_starts_step_back_and_no_other(steps: int, lower: int) -> None:
    before = priority()
    with ThreadPoolExecutor(1, initializer=step_back, initargs=(steps,)) as pool:
        found = pool.submit(lambda: (priority(), in_a_new_thread())).result()
    expected = min(before + lower, LOWEST)
    assert found == (expected, expected)
    assert (priority(), in_a_new_thread()) == (before, before)


def test_the_device_thread_begins_with_what_it_is_told() -> None:
    found: queue.SimpleQueue[int] = queue.SimpleQueue()
    failures: list[str] = []
    host = EngineHost(
        FakeEngine(num_tokens=1),
        watchdog_s=30,
        on_failure=failures.append,
        at_start=lambda: step_back(4),
        on_idle=lambda: found.put(priority()),
    )
    host.start()
    assert found.get(timeout=60) == min(priority() + 4, LOWEST)
    host.stop()
    assert failures == []
