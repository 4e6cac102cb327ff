"""Compare in a real browser over scripted runs."""

import re

import pytest
from playwright.sync_api import Page, expect

from models.sampling import Settings
from tests.e2e.conftest import Site, strip_text
from tests.fakes.app import FakeStack
from tests.fakes.scripted_runs import TEXT

pytestmark = pytest.mark.browser


def wait_for_all(page: Page) -> None:
    page.wait_for_selector(".dl-column")
    expect(page.locator(".dl-column:not([data-state=ended])")).to_have_count(0)
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
    assert "leaves A. Token 8" in page.inner_text("#dl-outcome")
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
    expect(page.locator("#dl-prompt textarea")).to_have_value("Compare me")
    expect(page.locator("tr[data-field=top_k] td[data-arm='2'] input")).to_have_value("7")
    wait_for_all(page)
    assert len(stack.runs) == 3


def test_stop_all(site: Site, stack: FakeStack) -> None:
    stack.token_s = 0.3
    page = site.open("/compare")
    page.click("#dl-run")
    page.wait_for_selector(".dl-column:nth-child(2) [data-i='1']")
    page.click("#dl-stop")
    wait_for_all(page)
    assert page.locator("#dl-outcome td:text-is('stopped')").count() == 2


def test_a_wrong_arm_is_refused_by_name(site: Site) -> None:
    page = site.open("/compare")
    page.fill("tr[data-field=temperature] td[data-arm='1'] input", "hot")
    page.click("#dl-run")
    expect(page.locator("[role=alert]")).to_contain_text("Arm B: temperature: 'hot' is not a number")


DRAWN = """() => {
  window.drawn = [];
  for (const area of document.querySelectorAll('.dl-column .dl-text')) {
    const nodes = new Set(area.querySelectorAll('[data-i]'));
    window.drawn.push(nodes);
    new MutationObserver((records) => records.forEach((record) => record.addedNodes.forEach((node) => {
      if (node.dataset?.i !== undefined) nodes.add(node);
      node.querySelectorAll?.('[data-i]').forEach((one) => nodes.add(one));
    }))).observe(area, { childList: true, subtree: true });
  }
}"""


def test_four_fast_arms_are_sent_and_drawn_once(site: Site, stack: FakeStack) -> None:
    num_tokens = 800
    stack.token_s, stack.text = 1 / 200, " word" * 900
    page = site.open("/compare")
    page.click("[data-add-arm]")
    page.click("[data-add-arm]")
    page.fill("#dl-c-max_tokens", str(num_tokens))
    received = count_bytes(page)
    page.click("#dl-run")
    page.wait_for_selector(".dl-column:nth-child(4) [data-i='0']")
    page.evaluate(DRAWN)
    wait_for_all(page)
    for arm in range(1, 5):
        column = f".dl-column:nth-child({arm}) .dl-text"
        assert strip_text(page, column) == " word" * num_tokens
        indices = page.locator(column).locator("[data-i]").evaluate_all("nodes => nodes.map(n => Number(n.dataset.i))")
        assert indices == list(range(num_tokens))
    assert page.evaluate("drawn.map((nodes) => nodes.size)") == [num_tokens] * 4
    assert sum(received) / (4 * num_tokens) < 150


def count_bytes(page: Page) -> list[int]:
    """Bytes of every answer from now on."""
    received: list[int] = []
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.dataReceived", lambda event: received.append(event["dataLength"]))
    return received


def test_columns_scroll_together_by_token(site: Site, stack: FakeStack) -> None:
    stack.token_s, stack.queue_s, stack.text = 0, 0, " art is long" * 120
    page = site.open("/compare", viewport={"width": 1000, "height": 500})
    page.fill("#dl-c-max_tokens", "400")
    page.click("#dl-run")
    wait_for_all(page)
    page.hover(".dl-column:nth-child(1) .dl-text")
    page.mouse.wheel(0, -100_000)
    page.wait_for_timeout(100)
    page.mouse.wheel(0, 700)
    tops = """areas => areas.map(area => {
      const top = area.getBoundingClientRect().top;
      const tokens = [...area.querySelectorAll('[data-i]')];
      return Number(tokens.find(t => t.getBoundingClientRect().bottom > top + 4).dataset.i);
    })"""
    page.wait_for_function("document.querySelectorAll('.dl-column .dl-text')[1].scrollTop > 100")
    page.wait_for_timeout(200)
    first, second = page.eval_on_selector_all(".dl-column .dl-text", tops)
    assert first > 20
    assert abs(first - second) <= 8  # a line's worth: a column starts a line where its own words break


def test_a_comparison_opened_by_link_can_be_run_again(site: Site, stack: FakeStack) -> None:
    experiment_id, _ = stack.submit_comparison("again", [Settings(seed=5), Settings(seed=5, top_k=3)])
    page = site.open(f"/compare?experiment={experiment_id}")
    wait_for_all(page)
    page.click("#dl-run")
    page.wait_for_url(re.compile("experiment=experiment-(?!1$)"))
    assert [run.settings for run in list(stack.runs.values())[2:]] == [Settings(seed=5), Settings(seed=5, top_k=3)]
