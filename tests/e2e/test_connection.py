"""Readers, ticks and events between browser and server."""

import re
import time
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from models.presence import WorkerPresence
from tests.e2e.conftest import Site, run_in_address, wait_for_end
from tests.e2e.server import ServerThread
from tests.fakes.app import FakeStack, application
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
    wait_until(lambda: stack.num_readers == 0, what="the reader's end")
    assert all(r.cancelled_at is None for r in stack.runs.values())


def test_other_events_answer_while_many_runs_stream(site: Site, stack: FakeStack) -> None:
    stack.token_s, stack.text = 0.5, " word" * 200
    for _ in range(6):
        streaming = site.open()
        streaming.click("#dl-run")
        streaming.wait_for_selector("#dl-strip [data-i='0']")
    page = site.open("/history")
    page.fill("#dl-table input[name=q]", "no such text")
    page.wait_for_selector("text=No saved run matches")
    assert stack.num_readers == 6, "and they still do"


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


def test_a_page_whose_server_was_away_comes_back_with_its_run_and_its_draft(chromium: Browser) -> None:
    stack = FakeStack()
    server = ServerThread(application(stack))
    server.start()
    site = Site(server.url, chromium)
    page = site.open()
    page.click("#dl-run")
    run_id = run_in_address(page)
    wait_for_end(page)
    page.fill("#dl-prompt textarea", "the next one")
    expect(page.locator("#dl-compare-link a")).to_have_attribute("href", re.compile("the%20next%20one"))
    page.evaluate("window.isOld = true")
    server.stop()
    expect(page.locator("text=Connection to the server was lost")).to_be_visible()
    server = ServerThread(application(stack), port=server.port)
    server.start()
    page.wait_for_function("window.isOld === undefined")
    wait_for_end(page)
    assert run_in_address(page) == run_id
    expect(page.locator("#dl-prompt textarea")).to_have_value("the next one")
    site.close()
    server.stop()
