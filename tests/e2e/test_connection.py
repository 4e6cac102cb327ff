"""Readers, ticks and events between browser and server."""

import time
from typing import Any

import pytest

from models.presence import WorkerPresence
from tests.e2e.conftest import Site, run_in_address
from tests.fakes.app import FakeStack
from tests.fakes.services import wait_until

pytestmark = pytest.mark.browser


def test_leaving_stops_the_reader_and_not_the_run(site: Site, stack: FakeStack) -> None:
    stack.queue_s = 30  # nothing is sent, so only the heartbeat can notice that the page has gone
    page = site.open()
    page.click("#dl-run")
    run_in_address(page)
    wait_until(lambda: stack.num_readers == 1, what="the reader")
    page.context.close()
    site.contexts.clear()
    wait_until(lambda: stack.num_readers == 0, timeout_s=5, what="the reader's end")
    assert all(r.cancelled_at is None for r in stack.runs.values())


def test_other_events_answer_while_many_runs_stream(site: Site, stack: FakeStack) -> None:
    stack.token_s, stack.text = 0.5, " word" * 200
    for _ in range(6):
        streaming = site.open()
        streaming.click("#dl-run")
        streaming.wait_for_selector("#dl-strip [data-i='0']")
    page = site.open("/history")
    begun = time.monotonic()
    page.fill("#dl-table input[name=q]", "no such text")
    page.wait_for_selector("text=No saved run matches")
    assert time.monotonic() - begun < 2
    assert stack.num_readers == 6


def test_an_action_is_followed_by_an_event_that_brings_lost_answers(
    site: Site, stack: FakeStack, monkeypatch: Any
) -> None:
    page = site.open()
    answer, calls = stack.workers, []

    def workers() -> list[WorkerPresence]:
        calls.append(time.monotonic())
        return answer()

    monkeypatch.setattr(stack, "workers", workers)
    while not calls:  # just after a tick, so that the next regular one is 5 s away
        page.wait_for_timeout(50)
    calls.clear()
    page.get_by_role("button", name="raw").click()
    page.wait_for_timeout(3000)
    assert len(calls) == 1


def test_a_tick_without_an_answer_does_not_hold_up_the_next(site: Site, stack: FakeStack, monkeypatch: Any) -> None:
    page = site.open()
    answer, calls = stack.workers, []

    def workers() -> list[WorkerPresence]:
        calls.append(time.monotonic())
        if len(calls) == 1:
            time.sleep(11)
        return answer()

    monkeypatch.setattr(stack, "workers", workers)
    page.wait_for_timeout(10_800)
    assert len(calls) >= 2
