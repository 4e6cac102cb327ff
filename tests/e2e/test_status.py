"""The status page in a real browser: its tables hold what the parts say, and stay true."""

from datetime import UTC, datetime

from playwright.sync_api import Page, expect

from app.overview import FailedRun, Spread
from models.errors import BrokerUnavailableError
from models.events import StopReason
from tests.e2e.conftest import Site, run, wait_for_end
from tests.fakes.app import FakeStack
from tests.fakes.scripted_runs import CHECKPOINT

HOSTILE = '<img src=x onerror="window.pwned=1">'


def section(page: Page, title: str) -> str:
    return page.locator(f"#dl-overview section[aria-label='{title}']").inner_text()


def test_it_shows_what_there_is(site: Site, stack: FakeStack) -> None:
    stack.spreads = [Spread(CHECKPOINT, "ttft_ms", 12, (140.0, 900.0, 12_500.0))]
    stack.failed = [FailedRun("a-run", HOSTILE, datetime.now(UTC), StopReason.WORKER_LOST, HOSTILE)]
    page = site.open("/status")
    page.wait_for_selector("#dl-overview [data-worker='w1']")
    cells = page.locator("#dl-overview [data-figure='ttft_ms'] td").all_inner_texts()
    assert cells == ["TTFT", "140 ms", "900 ms", "12.5 s", "12"]
    failures = page.locator("#dl-overview [data-run='a-run']")
    assert HOSTILE in failures.inner_text()
    assert page.evaluate("window.pwned") is None
    assert failures.locator("a").get_attribute("href") == "./?run=a-run"
    assert "None" in section(page, "Waiting and running")


def test_a_run_comes_and_goes_without_a_reload(site: Site, stack: FakeStack) -> None:
    stack.token_s = 0.3
    status = site.open("/status")
    status.wait_for_selector("#dl-overview [data-worker='w1']")
    playground = site.open()
    run(playground)
    line = status.locator("#dl-overview section[aria-label='Waiting and running'] [data-run]")
    expect(line).to_have_count(1)
    playground.click("#dl-stop")
    wait_for_end(playground)
    expect(line).to_have_count(0)


def test_a_part_that_is_away_is_named(site: Site, stack: FakeStack) -> None:
    page = site.open("/status")
    page.wait_for_selector("#dl-overview [data-worker='w1']")
    stack.failures["workers"] = BrokerUnavailableError("Redis at here:1 does not answer.")
    expect(page.locator("#dl-overview .dl-problem")).to_have_text("Redis at here:1 does not answer.")
    del stack.failures["workers"]
    expect(page.locator("#dl-overview .dl-problem")).to_have_count(0)


def test_a_narrow_page_does_not_scroll_sideways(site: Site) -> None:
    page = site.open("/status", viewport={"width": 480, "height": 900})
    page.wait_for_selector("#dl-overview [data-worker='w1']")
    assert page.evaluate("document.documentElement.scrollWidth") <= 480


def test_the_latencies_of_each_checkpoint_fit_a_narrow_page(site: Site, stack: FakeStack) -> None:
    values = (140.0, 900.0, 12_500.0)
    stack.spreads = [Spread(name, "ttft_ms", 12_345, values) for name in (CHECKPOINT, HOSTILE)]
    page = site.open("/status", viewport={"width": 480, "height": 900})
    lines = page.locator("#dl-overview [data-figure='ttft_ms']")
    expect(lines).to_have_count(2)
    for i in range(2):
        box = lines.nth(i).locator("td").last.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 480
    assert page.locator("#dl-overview h3").all_inner_texts() == [CHECKPOINT, HOSTILE]
