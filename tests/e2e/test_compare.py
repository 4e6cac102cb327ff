"""Compare and history in a real browser over scripted runs."""

import re
import time

import pytest
from playwright.sync_api import Page, expect

from models.sampling import Settings
from tests.e2e.conftest import Site, strip_text
from tests.fakes.app import TEXT, FakeStack

pytestmark = pytest.mark.browser


def wait_for_all(page: Page, timeout_ms: int = 20_000) -> None:
    page.wait_for_selector(".dl-column")
    expect(page.locator(".dl-column:not([data-state=ended])")).to_have_count(0, timeout=timeout_ms)
    expect(page.locator("#dl-run")).to_be_enabled()


def test_two_arms_side_by_side(site: Site, stack: FakeStack) -> None:
    page = site.open("/compare")
    page.click("#dl-run")
    page.wait_for_selector("#dl-columns .dl-column:nth-child(2) [data-i='3']")
    assert page.locator(".dl-column[data-state=running]").count() == 2
    wait_for_all(page)
    assert strip_text(page, "#dl-columns .dl-column:nth-child(1) .dl-text") == TEXT
    assert strip_text(page, "#dl-columns .dl-column:nth-child(2) .dl-text") == TEXT.replace("art", "gardens", 1)
    assert page.locator(".dl-diverges").all_inner_texts() == [" art", " gardens"]
    assert "B leaves A. Token 8" in page.inner_text("#dl-outcome")
    assert page.locator("#dl-outcome tbody tr").count() == 2
    arms = [run.settings for run in stack.runs.values()]
    assert [a.temperature for a in arms] == [0.2, 1.2]
    assert arms[0].seed == arms[1].seed


def test_a_token_opens_every_arm_at_its_position(site: Site) -> None:
    page = site.open("/compare")
    page.click("#dl-run")
    wait_for_all(page)
    page.click(".dl-column:nth-child(2) [data-i='8']")
    page.wait_for_selector("#dl-inspectors [data-position='8'] >> nth=1")
    assert [t.split()[0] for t in page.locator("#dl-inspectors h3").all_inner_texts()] == ["A", "B"]


def test_the_link_reopens_the_comparison_in_mid_run(site: Site, stack: FakeStack) -> None:
    page = site.open("/compare")
    page.fill("#dl-prompt textarea", "Compare me")
    page.click("[data-add-arm]")
    page.fill("tr[data-field=top_k] td[data-arm='2'] input", "7")
    page.click("#dl-run")
    page.wait_for_url(re.compile("experiment="))
    page.wait_for_selector(".dl-column:nth-child(3) [data-i='4']")
    page.reload()
    page.wait_for_selector(".dl-column:nth-child(3) [data-i='8']")
    assert page.input_value("#dl-prompt textarea") == "Compare me"
    assert page.input_value("tr[data-field=top_k] td[data-arm='2'] input") == "7"
    wait_for_all(page)
    assert len(stack.runs) == 3


def test_stop_all(site: Site) -> None:
    page = site.open("/compare")
    page.click("#dl-run")
    page.wait_for_selector(".dl-column:nth-child(2) [data-i='5']")
    page.click("#dl-stop")
    wait_for_all(page, 3000)
    assert page.locator("#dl-outcome td:text-is('stopped')").count() == 2


def test_a_wrong_arm_is_refused_by_name(site: Site) -> None:
    page = site.open("/compare")
    page.fill("tr[data-field=temperature] td[data-arm='1'] input", "hot")
    page.click("#dl-run")
    expect(page.locator("[role=alert]")).to_contain_text("temperature: 'hot' is not a number")


def test_four_fast_arms_keep_up_and_send_nothing_twice(site: Site, stack: FakeStack) -> None:
    num_tokens = 800
    stack.token_s, stack.text = 1 / 200, " word" * 900
    page = site.open("/compare")
    page.click("[data-add-arm]")
    page.click("[data-add-arm]")
    page.fill("#dl-c-max_tokens", str(num_tokens))
    received = count_bytes(page)
    page.click("#dl-run")
    begun = time.monotonic()
    page.wait_for_selector(f".dl-column:nth-child(4) [data-i='{num_tokens - 1}']", timeout=30_000)
    wait_for_all(page)
    assert time.monotonic() - begun < num_tokens / 200 + 0.3 + 2
    assert sum(received) / (4 * num_tokens) < 150


def count_bytes(page: Page) -> list[int]:
    """Bytes of every answer from now on."""
    received: list[int] = []
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.dataReceived", lambda event: received.append(event["dataLength"]))
    return received


def test_history_lists_filters_and_opens(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    for i in range(60):
        stack.submit(f"prompt number {i}", Settings(seed=i, temperature=0.5))
    stack.submit_comparison("two arms", [Settings(seed=1), Settings(seed=1, top_k=3)])
    page = site.open("/history")
    page.wait_for_selector("[data-run]")
    assert page.locator("[data-run]").count() == 50
    assert page.locator("[data-run] >> nth=0").inner_text().split("\t")[3].split() == ["B", "top_k", "3"]
    page.click("#dl-more")
    expect(page.locator("[data-run]")).to_have_count(62)
    page.fill("#dl-q input, #dl-q textarea", "number 17")
    expect(page.locator("[data-run]")).to_have_count(1)
    assert "q=number+17" in page.url
    page.reload()
    expect(page.locator("[data-run]")).to_have_count(1)
    page.click("[data-run] a")
    page.wait_for_selector("#dl-facts .dl-ending")
    assert page.input_value("#dl-prompt textarea") == "prompt number 17"
    page.goto(site.url + "/history?q=two+arms")
    expect(page.locator("[data-run]")).to_have_count(2)
    page.click(".dl-armlink >> nth=0")
    page.wait_for_selector(".dl-column:nth-child(2) [data-i='3']")


def test_history_filters_by_stop_reason(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    stack.submit("short", Settings(seed=1, max_tokens=3))
    stack.submit("long", Settings(seed=1))
    page = site.open("/history?stop=max_tokens")
    expect(page.locator("[data-run]")).to_have_count(1)
    assert "short" in page.inner_text("[data-run]")
