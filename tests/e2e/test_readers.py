"""Several who look at one run: reloads, other browsers, twenty at once, and a Stop while much is streaming."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from models.events import Status
from models.sampling import Settings
from tests.e2e.conftest import Site, strip_text, wait_for_end
from tests.fakes.app import FakeStack
from tests.fakes.scripted_runs import TEXT, pieces_of
from tests.fakes.services import wait_until

pytestmark = pytest.mark.browser

NARROW: dict[str, Any] = {"viewport": {"width": 480, "height": 900}}
AREA = "#dl-strip .dl-text"
NUM_TOKENS = len(pieces_of(TEXT)) + 1  # and the end token
NUM_FIRST = 22  # of what a run tells: that it has begun, that its prompt is read, then tokens
NUM_SHOWN = NUM_FIRST - 2
NUM_VIEWERS = 20
SLOW_MS = 90_000
NUM_PAGES = 4  # of one browser, which opens at most six connections to a server, one of them for each page's stream


def indices(page: Page, area: str = AREA) -> list[int]:
    """The tokens that a page shows, in its order."""
    return page.locator(area).locator("[data-i]").evaluate_all("nodes => nodes.map(node => Number(node.dataset.i))")


def column(number: int) -> str:
    return f".dl-column:nth-child({number}) .dl-text"


def wait_for_arms(page: Page, number: int) -> None:
    expect(page.locator(".dl-column[data-state=ended]")).to_have_count(number)
    expect(page.locator("#dl-run")).to_be_enabled()


def viewers_of(site: Site, run_id: str) -> list[Page]:
    """Pages on a run that goes on, in several browsers."""
    viewers: list[Page] = []
    while len(viewers) < NUM_VIEWERS:
        if len(viewers) % NUM_PAGES == 0:
            site.contexts.append(site.browser.new_context())
        viewer = site.contexts[-1].new_page()
        viewer.set_default_timeout(SLOW_MS)  # so many pages at once are a lot of work for one machine
        site.watched.attach(viewer, site.url)
        viewer.goto(f"{site.url}/?run={run_id}")
        viewers.append(viewer)
    return viewers


def nobody_reads(stack: FakeStack) -> None:
    wait_until(lambda: stack.num_readers == 0, what="the end of every reader")


def hold(stack: FakeStack, run_ids: list[str]) -> Callable[[], None]:
    """Let runs that tell all at once wait after some tokens; the answer lets them go on, slowly."""
    later = {run_id: stack.runs[run_id].payloads[NUM_FIRST:] for run_id in run_ids}
    for run_id in run_ids:
        del stack.runs[run_id].payloads[NUM_FIRST:]

    def release() -> None:
        for run_id, payloads in later.items():
            run = stack.runs[run_id]
            run.token_s, run.started = 0.05, time.monotonic() - NUM_FIRST * 0.05
            run.payloads.extend(payloads)

    return release


def test_a_reload_and_a_second_browser_see_every_token_of_a_run_once(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    run_id = stack.submit("for two", Settings(seed=1))
    release = hold(stack, [run_id])
    page = site.open(f"/?run={run_id}")
    page.wait_for_selector(f"{AREA} [data-i='5']")
    other = site.open(f"/?run={run_id}", **NARROW)
    page.reload()
    for one in (page, other):
        one.wait_for_selector(f"{AREA} [data-i='{NUM_SHOWN - 1}']")
        assert one.get_attribute("#dl-strip .dl-strip", "data-state") == "running"
        assert indices(one) == list(range(NUM_SHOWN))
    release()
    for one in (page, other):
        wait_for_end(one)
        assert indices(one) == list(range(NUM_TOKENS))
        assert strip_text(one) == stack.run(run_id).text == TEXT
    assert len({one.inner_text("#dl-facts .dl-ending") for one in (page, other)}) == 1
    assert len(stack.runs) == 1
    nobody_reads(stack)


def test_a_reload_and_a_second_browser_see_every_token_of_each_arm_once(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    experiment_id, run_ids = stack.submit_comparison("for two", [Settings(seed=1), Settings(seed=1, top_k=5)])
    release = hold(stack, run_ids)
    page = site.open(f"/compare?experiment={experiment_id}")
    page.wait_for_selector(f"{column(2)} [data-i='5']")
    other = site.open(f"/compare?experiment={experiment_id}", **NARROW)
    page.reload()
    for one in (page, other):
        for arm in (1, 2):
            one.wait_for_selector(f"{column(arm)} [data-i='{NUM_SHOWN - 1}']")
            assert indices(one, column(arm)) == list(range(NUM_SHOWN))
        assert one.locator(".dl-column[data-state=running]").count() == 2
    release()
    for one in (page, other):
        wait_for_arms(one, 2)
        for arm, run_id in enumerate(run_ids, start=1):
            assert indices(one, column(arm)) == list(range(NUM_TOKENS))
            assert strip_text(one, column(arm)) == stack.run(run_id).text
    assert len({one.locator("#dl-outcome table").evaluate("table => table.textContent") for one in (page, other)}) == 1
    assert len(stack.runs) == 2
    nobody_reads(stack)


def test_twenty_viewers_of_one_run_all_see_the_whole_text(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    run_id = stack.submit("for many", Settings(seed=1))
    end = stack.runs[run_id].payloads.pop()
    viewers = viewers_of(site, run_id)
    wait_until(lambda: stack.num_readers == NUM_VIEWERS, timeout_s=120, what="a reader for each")
    stack.runs[run_id].payloads.append(end)
    for viewer in viewers:
        wait_for_end(viewer)
        assert strip_text(viewer) == TEXT
        assert indices(viewer) == list(range(NUM_TOKENS))
    nobody_reads(stack)


def test_viewers_that_leave_take_their_readers_with_them(site: Site, stack: FakeStack) -> None:
    stack.token_s, stack.text = 1.0, " word" * 400
    run_id = stack.submit("for many", Settings(seed=1, max_tokens=400))
    first, *others = viewers_of(site, run_id)
    wait_until(lambda: stack.num_readers == NUM_VIEWERS, timeout_s=120, what="a reader for each")
    leaving: list[Callable[[Page], object]] = [Page.close, lambda page: page.goto("about:blank")]
    for number, viewer in enumerate(others):
        leaving[number % 2](viewer)
    wait_until(lambda: stack.num_readers == 1, what="the end of the readers of those who left")
    assert stack.runs[run_id].cancelled_at is None
    first.goto("about:blank")
    nobody_reads(stack)


def test_stop_while_eight_arms_stream_ends_all_and_keeps_what_came(site: Site, stack: FakeStack) -> None:
    stack.token_s = 0.4
    arms = [Settings(seed=5, top_k=k) for k in range(8)]
    experiment_id, run_ids = stack.submit_comparison("eight", arms)
    page = site.open(f"/compare?experiment={experiment_id}")
    page.wait_for_selector(".dl-cell >> nth=7")
    for cell in (2, 3):
        page.locator(".dl-cell").nth(cell).click()
    page.wait_for_selector(f"{column(4)} [data-i='1']")
    expect(page.locator(".dl-progress [role=status]")).to_have_text("0 of 8 runs ended, 8 running")
    page.click("#dl-stop")
    expect(page.locator(".dl-progress [role=status]")).to_contain_text("8 of 8 runs ended")
    expect(page.locator("#dl-run")).to_be_enabled()
    ended = [stack.run(run_id) for run_id in run_ids]
    assert {detail.status for detail in ended} == {Status.CANCELLED}
    assert page.locator("#dl-outcome td:text-is('stopped')").count() == 8
    assert all(0 < len(detail.tokens) < NUM_TOKENS for detail in ended)
    names = page.locator(".dl-column b").all_inner_texts()
    for number, name in enumerate(names, start=1):
        detail = ended["ABCDEFGH".index(name)]
        assert strip_text(page, column(number)) == detail.text
        assert indices(page, column(number)) == list(range(len(detail.tokens)))
        assert page.locator(".dl-column").nth(number - 1).get_attribute("data-state") == "ended"
    cells = page.locator(".dl-cell")
    expect(cells).to_have_count(8)
    figures = cells.evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")
    assert figures == [len(detail.tokens) for detail in ended]
    page.reload()
    expect(page.locator(".dl-progress [role=status]")).to_contain_text("8 of 8 runs ended")
    assert page.locator("#dl-outcome td:text-is('stopped')").count() == 8
    nobody_reads(stack)
