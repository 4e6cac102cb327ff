"""The whole product in its own processes: Valkey, worker, web server, browser. Only the network is scripted."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from app.history import History
from models.db.session import Database
from models.events import StopReason
from tests.conftest import missing
from tests.e2e.conftest import Site, run_in_address, strip_text, wait_for_end
from tests.fakes.real_stack import RealStack
from tests.fakes.services import ServiceMissingError, Valkey
from tests.fakes.worker import Plan

pytestmark = pytest.mark.browser

STEP_S = 0.04
NUM_TOKENS = 60
PROMPT = "the quick brown fox"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path) -> Iterator[RealStack]:
    folder = tmp_path_factory.mktemp("stack")
    database = folder / "decodelab.sqlite3"
    database.write_bytes(migrated_sqlite.read_bytes())
    (folder / "valkey").mkdir()
    stack = RealStack(folder, f"sqlite:///{database}", Valkey(folder / "valkey"), Plan(step_s=STEP_S))
    try:
        stack.start()
        yield stack
    except ServiceMissingError as exc:
        missing(str(exc))
    finally:
        stack.kill()


@pytest.fixture
def site(real: RealStack, chromium: Browser) -> Iterator[Site]:
    site = Site(real.url, chromium)
    yield site
    site.close()


@pytest.fixture
def history(real: RealStack) -> Iterator[History]:
    database = Database(real.database_url)
    yield History(database)
    database.close()


def test_type_run_watch_click_and_see_what_is_stored(site: Site, history: History) -> None:
    page = site.open()
    page.fill("#dl-prompt textarea", PROMPT)
    expect(page.locator("#dl-count")).to_contain_text("tokens")
    page.fill("#dl-c-max_tokens", str(NUM_TOKENS))
    page.fill("#dl-c-temperature", "0.7")
    page.fill("#dl-c-top_p", "0.9")
    page.click("#dl-run")
    page.wait_for_selector("#dl-strip [data-i='2']")
    assert page.get_attribute("#dl-strip .dl-strip", "data-state") == "running"
    run_id = run_in_address(page)
    page.click("#dl-strip [data-i='2']")
    page.wait_for_selector("#dl-inspector [data-position='2']")
    wait_for_end(page)

    detail = history.run(run_id)
    assert strip_text(page) == detail.text
    assert "max_tokens is used up, 60 tokens" in page.inner_text("#dl-facts .dl-ending")
    assert detail.stop is not None
    assert detail.stop.reason is StopReason.MAX_TOKENS
    stored = detail.tokens[2]
    raw = page.eval_on_selector_all("#dl-inspector [data-raw]", "cells => cells.map(c => Number(c.dataset.raw))")
    assert raw == [c.raw_logprob for c in stored.candidates]
    processed = page.eval_on_selector_all(
        "#dl-inspector [data-processed]", "cells => cells.map(c => Number(c.dataset.processed))"
    )
    assert processed == [c.logprob for c in stored.candidates if c.logprob is not None]
    assert page.inner_text("#dl-facts").count("prefill") >= 2


def test_stop_ends_the_run_and_says_so_everywhere(site: Site, history: History) -> None:
    page = site.open()
    page.fill("#dl-prompt textarea", PROMPT)
    page.fill("#dl-c-max_tokens", "400")
    page.click("#dl-run")
    page.wait_for_selector("#dl-strip [data-i='5']")
    page.click("#dl-stop")
    wait_for_end(page)
    detail = history.run(run_in_address(page))
    assert detail.stop is not None
    assert detail.stop.reason is StopReason.CANCELLED
    assert strip_text(page) == detail.text
    assert page.locator("#dl-strip .dl-t").count() == len(detail.tokens) < 400


def test_a_reload_in_mid_run_shows_all_and_goes_on(site: Site, history: History) -> None:
    page = site.open()
    page.fill("#dl-prompt textarea", PROMPT)
    page.fill("#dl-c-max_tokens", "100")
    page.click("#dl-run")
    page.wait_for_selector("#dl-strip [data-i='8']")
    page.reload()
    page.wait_for_selector("#dl-strip [data-i='10']")
    assert page.get_attribute("#dl-strip .dl-strip", "data-state") == "running"
    wait_for_end(page)
    assert strip_text(page) == history.run(run_in_address(page)).text
    assert page.locator("#dl-strip .dl-t").count() == 100


def test_two_arms_and_both_are_found_after_a_restart_of_everything(site: Site, real: RealStack) -> None:
    page = site.open("/compare")
    page.fill("#dl-prompt textarea", PROMPT)
    page.fill("#dl-c-max_tokens", "40")
    page.click("#dl-run")
    page.wait_for_selector(".dl-column:nth-child(2) [data-i='3']")
    expect(page.locator(".dl-column[data-state=ended]")).to_have_count(2)
    link = page.url
    texts = [strip_text(page, f".dl-column:nth-child({i}) .dl-text") for i in (1, 2)]
    page.goto("about:blank")

    real.kill()
    real.start()
    page.goto(real.url + "/history")
    page.locator("[data-comparison] [data-unfold]").first.click()
    expect(page.locator(".dl-of .dl-armlink")).to_have_text(["A", "B"])
    page.goto(link)
    page.wait_for_selector(".dl-column:nth-child(2) [data-i='39']")
    assert [strip_text(page, f".dl-column:nth-child({i}) .dl-text") for i in (1, 2)] == texts


def test_a_prompt_over_the_context_is_refused_with_both_numbers(site: Site) -> None:
    prompt = "the " * 9000
    page = site.open()
    page.fill("#dl-prompt textarea", prompt)
    page.click("#dl-run")
    # Before queueing where the web process has the tokenizer, by the worker where it has not.
    expect(page.locator(".dl-alert-on, .dl-ending")).to_contain_text(re.compile("has 9,?001 tokens.*8,?192", re.S))
    assert page.input_value("#dl-prompt textarea") == prompt


def test_an_empty_prompt_is_refused(site: Site) -> None:
    page = site.open()
    page.fill("#dl-prompt textarea", "")
    page.click("#dl-run")
    expect(page.locator(".dl-alert-on, .dl-ending")).to_contain_text(re.compile("prompt is empty|no token"))


def test_redis_away_at_submit_is_a_sentence_and_nothing_is_lost(site: Site, real: RealStack) -> None:
    page = site.open()
    page.fill("#dl-prompt textarea", PROMPT)
    real.valkey.kill()
    try:
        page.click("#dl-run")
        expect(page.locator("[role=alert]")).not_to_have_text("")
        assert page.input_value("#dl-prompt textarea") == PROMPT
        expect(page.locator("#dl-run")).to_be_visible()
        expect(page.locator("#dl-status")).to_contain_text("does not answer")
    finally:
        real.valkey.start()
    expect(page.locator("#dl-status")).to_contain_text("scripted")
    page.click("#dl-run")
    page.wait_for_selector("#dl-strip [data-i='0']")


def test_no_worker_names_the_command(site: Site, real: RealStack) -> None:
    assert real.worker is not None
    real.worker.kill()
    with real.valkey.client() as client:
        for key in client.scan_iter("decodelab:worker*"):
            client.delete(key)
    page = site.open()
    expect(page.locator("#dl-status")).to_contain_text("decodelab worker")
    page.click("#dl-run")
    expect(page.locator("[role=alert]")).to_contain_text("decodelab worker")
