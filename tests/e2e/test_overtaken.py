"""Questions that follow quickly upon each other: the page shows the answer to the last one, whichever comes first."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from playwright.sync_api import expect

from models.events import Event
from models.sampling import Settings
from tests.e2e.conftest import Site, run, wait_for_end
from tests.fakes.app import FakeStack
from tests.fakes.services import wait_until

pytestmark = pytest.mark.browser


class Held:
    """Lets questions about chosen tokens reach a scripted stack, and holds their answers until they are let go."""

    def __init__(self, stack: FakeStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []  # positions
        self.let_go: set[int] = set()
        self._follow = stack.follow
        monkeypatch.setattr(stack, "follow", self.follow)

    async def follow(self, run_id: str, after: int = -1) -> AsyncIterator[Event]:
        position = after - 1
        if position >= 0:
            self.asked.append(position)
            while position not in self.let_go:
                await asyncio.sleep(0.01)
        async for event in self._follow(run_id, after):
            yield event


@pytest.mark.parametrize("order", [(2, 5), (5, 2)])
def test_the_inspector_shows_the_token_that_was_chosen_last(
    site: Site, stack: FakeStack, monkeypatch: pytest.MonkeyPatch, order: tuple[int, int]
) -> None:
    page = site.open()
    run(page)
    wait_for_end(page)
    held = Held(stack, monkeypatch)
    page.click("#dl-strip [data-i='2']")
    wait_until(lambda: held.asked == [2], what="the first question")
    page.click("#dl-strip [data-i='5']")
    wait_until(lambda: held.asked == [2, 5], what="the second question")
    for position in order:
        held.let_go.add(position)
        page.wait_for_timeout(300)
    expect(page.locator("#dl-inspector [data-position]")).to_have_attribute("data-position", "5")


def test_the_inspectors_of_arms_show_the_token_that_was_chosen_last(
    site: Site, stack: FakeStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.token_s = stack.queue_s = 0
    experiment_id, _ = stack.submit_comparison("again", [Settings(seed=5), Settings(seed=5, top_k=3)])
    page = site.open(f"/compare?experiment={experiment_id}")
    expect(page.locator(".dl-column[data-state=ended]")).to_have_count(2)
    page.wait_for_selector("#dl-inspectors [data-position]")
    held = Held(stack, monkeypatch)
    for position in (1, 3):
        page.click(f".dl-column:nth-child(1) [data-i='{position}']")
        wait_until(lambda: position in held.asked, what="the question")  # noqa: B023 -- called at once
    for position in (3, 1):
        held.let_go.add(position)
        page.wait_for_timeout(300)
    expect(page.locator("#dl-inspectors [data-position]")).to_have_count(2)
    shown = page.locator("#dl-inspectors [data-position]").evaluate_all("all => all.map(one => one.dataset.position)")
    assert shown == ["3", "3"]


def test_a_control_that_moves_while_a_what_if_computes_is_answered(site: Site, stack: FakeStack) -> None:
    stack.token_s = 0.002
    page = site.open()
    run(page)
    wait_for_end(page)
    page.click('[data-fold="what-if"] > summary')
    page.wait_for_selector('[data-fold="what-if"]:not([data-busy]) .dl-text [data-i]')
    stack.examiner.answer_s = 2.5
    for temperature in ("0.5", "0.6", "1.6"):
        asked = stack.examiner.num_asked
        page.fill("#dl-w-temperature", temperature)
        wait_until(lambda: stack.examiner.num_asked > asked, what="the question")  # noqa: B023 -- at once
    page.wait_for_selector('[data-fold="what-if"]:not([data-busy]) .dl-diverges')
    assert [settings.temperature for settings in stack.examiner.asked[-1:]] == [1.6]
    wait_until(lambda: stack.examiner.num_open == 0, what="the end of the questions that were overtaken")
