"""The playground in a real browser over scripted runs."""

import math
import re
from typing import Any

import pytest
from playwright.sync_api import expect

from models.events import TokenPicked
from models.sampling import Settings
from tests.e2e.conftest import Site, run, run_in_address, strip_text, wait_for_end
from tests.fakes.app import FakeStack, broker_away
from tests.fakes.scripted_runs import TEXT

pytestmark = pytest.mark.browser


def test_tokens_arrive_before_the_run_has_ended(site: Site) -> None:
    page = site.open()
    run(page)
    assert page.get_attribute("#dl-strip .dl-strip", "data-state") == "running"
    assert "run=run-" in page.url
    assert page.is_visible("#dl-stop")
    early = strip_text(page)
    assert early
    assert TEXT.startswith(early)
    assert len(early) < len(TEXT)
    wait_for_end(page)
    assert strip_text(page) == TEXT
    assert page.inner_text("#dl-strip .dl-chip") == "<|im_end|>"
    assert "the checkpoint picked its end token (id 2)" in page.inner_text("#dl-facts")
    expect(page.locator("#dl-run")).to_be_visible()
    assert "decode: 57 passes of one position" in page.inner_text("#dl-facts")


def test_the_inspector_shows_the_stored_numbers(site: Site, stack: FakeStack) -> None:
    page = site.open()
    run(page)
    page.wait_for_selector("#dl-strip [data-i='5']")
    page.click("#dl-strip [data-i='5']")
    stored = stored_token(stack, run_in_address(page), 5)
    page.wait_for_selector("#dl-inspector [data-position='5']")
    raw = page.eval_on_selector_all("#dl-inspector [data-raw]", "cells => cells.map(c => Number(c.dataset.raw))")
    assert raw == [c.raw_logprob for c in stored.candidates]
    processed = page.eval_on_selector_all(
        "#dl-inspector [data-processed]", "cells => cells.map(c => Number(c.dataset.processed))"
    )
    assert processed == [c.logprob for c in stored.candidates if c.logprob is not None]
    assert page.locator("#dl-inspector [data-removed-by='top_p']").count() == len(raw) - len(processed)
    assert page.inner_text("#dl-inspector .dl-picked .dl-piece").strip('"') == stored.piece
    shown = page.inner_text("#dl-inspector .dl-picked .dl-num >> nth=0")
    assert float(shown.split()[0]) == pytest.approx(100 * math.exp(stored.raw_logprob), abs=0.05)


def test_arrow_keys_move_the_inspector_and_it_stays_while_tokens_come(site: Site) -> None:
    page = site.open()
    run(page)
    page.focus("#dl-strip .dl-text")
    page.keyboard.press("Home")
    page.wait_for_selector("#dl-inspector [data-position='0']")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#dl-inspector [data-position='1']")
    page.wait_for_selector("#dl-strip [data-i='20']")
    assert page.is_visible("#dl-inspector [data-position='1']")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#dl-inspector [data-position='0']")


def test_stop_by_key_keeps_what_came(site: Site) -> None:
    page = site.open()
    run(page)
    page.wait_for_selector("#dl-strip [data-i='8']")
    page.keyboard.press("Escape")
    wait_for_end(page)
    assert page.inner_text("#dl-facts .dl-ending").startswith("Stopped by you after")
    text = strip_text(page)
    assert text
    assert TEXT.startswith(text)
    assert len(text) < len(TEXT)


def test_control_enter_runs(site: Site) -> None:
    page = site.open()
    page.fill("#dl-prompt textarea", "Once upon a time")
    page.focus("#dl-prompt textarea")
    page.keyboard.press("Control+Enter")
    wait_for_end(page)


def test_a_reload_in_mid_run_shows_all_and_goes_on(site: Site, stack: FakeStack) -> None:
    stack.token_s = 0.2  # a page takes a second or two to load on a busy machine
    page = site.open()
    page.fill("#dl-prompt textarea", "A prompt of mine")
    page.fill("#dl-c-temperature", "0.7")
    run(page)
    page.wait_for_selector("#dl-strip [data-i='10']")
    page.reload()
    page.wait_for_selector("#dl-strip [data-i='12']")
    assert page.get_attribute("#dl-strip .dl-strip", "data-state") == "running"
    assert TEXT.startswith(strip_text(page))
    expect(page.locator("#dl-prompt textarea")).to_have_value("A prompt of mine")
    expect(page.locator("#dl-c-temperature")).to_have_value("0.7")
    wait_for_end(page)
    assert strip_text(page) == TEXT
    assert len(stack.runs) == 1


def test_settings_are_marked_counted_and_reset(site: Site, stack: FakeStack) -> None:
    page = site.open()
    expect(page.locator(".dl-changes")).to_have_text("all neutral")
    page.fill("#dl-c-temperature", "0.8")
    page.click("text=stops")
    page.fill("#dl-c-stop", "\\n\\n")
    page.click("text=order, prompt, record")
    page.click("[data-stage='top_p'] [data-up]")
    expect(page.locator(".dl-changes")).to_have_text("3 changed")
    page.fill("#dl-c-max_tokens", "7")
    run(page)
    wait_for_end(page)
    settings = next(iter(stack.runs.values())).settings
    assert settings.changed().keys() == {"temperature", "stop", "order", "max_tokens"}
    assert settings.stop == ("\n\n",)
    assert settings.order.index("top_p") < settings.order.index("top_k")
    assert settings.seed == int(page.input_value("#dl-c-seed"))
    page.click("[data-reset]")
    expect(page.locator(".dl-changes")).to_have_text("all neutral")
    assert page.input_value("#dl-c-temperature") == ""


@pytest.mark.parametrize("width", [480, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_width(site: Site, stack: FakeStack, width: int, scheme: Any) -> None:
    page = site.open(viewport={"width": width, "height": 900}, color_scheme=scheme)
    run(page)
    for path in ("/", "/compare", "/history"):
        page.goto(site.url + path)
        page.wait_for_selector("#dl-nav")
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) > 384) == (scheme == "light")


def stored_token(stack: FakeStack, run_id: str, position: int) -> TokenPicked:
    tokens = [p for p in stack.runs[run_id].payloads if isinstance(p, TokenPicked)]
    return tokens[position]


def test_the_token_count_follows_the_prompt(site: Site) -> None:
    page = site.open()
    expect(page.locator("#dl-count")).to_have_text("5 tokens")
    page.fill("#dl-prompt textarea", "one two")
    expect(page.locator("#dl-count")).to_have_text("2 tokens")


def test_a_link_opens_the_run_as_it_was(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    run_id = stack.submit("by link", Settings(seed=2**64 - 1, top_p=0.5))
    page = site.open(f"/?run={run_id}")
    wait_for_end(page)
    assert strip_text(page) == TEXT
    expect(page.locator("#dl-prompt textarea")).to_have_value("by link")
    expect(page.locator("#dl-c-seed")).to_have_value(str(2**64 - 1))
    expect(page.locator("#dl-c-top_p")).to_have_value("0.5")


DRAWS = """const real = crypto.getRandomValues.bind(crypto);
window.draws = 0;
crypto.getRandomValues = (array) => { window.draws += array instanceof Uint32Array; return real(array); };"""


@pytest.mark.parametrize("path", ["/?run={}", "/compare?experiment={}"])
def test_a_page_that_opens_a_link_draws_no_seed_that_could_win_over_the_runs(
    site: Site, stack: FakeStack, path: str
) -> None:
    page = site.open(path)  # a first page, for its context: the next one counts what is drawn
    page.context.add_init_script(DRAWS)
    page.goto(site.url + "/")
    expect(page.locator("#dl-c-seed")).not_to_have_value("")
    assert page.evaluate("draws") > 0
    page.goto(site.url + path.format("nothing"))
    expect(page.locator("[role=alert]")).to_contain_text("nothing")
    expect(page.locator("#dl-c-seed")).not_to_have_value("")
    assert page.evaluate("draws") == 0


@pytest.mark.parametrize("changes", [{}, {"top_p": 0.5}])
def test_a_run_opened_by_link_can_be_run_again(site: Site, stack: FakeStack, changes: dict[str, Any]) -> None:
    stack.token_s, stack.queue_s = 0.03, 0.2
    run_id = stack.submit("by link", Settings(seed=7, max_tokens=9, **changes))
    page = site.open(f"/?run={run_id}")
    wait_for_end(page)
    page.click("#dl-run")
    page.wait_for_url(re.compile(r"run=run-0002"))
    again = stack.runs["run-0002"]
    assert (again.prompt, again.settings) == ("by link", stack.runs[run_id].settings)
    wait_for_end(page)
    page.fill("#dl-c-max_tokens", "5")
    page.click("#dl-run")
    page.wait_for_url(re.compile(r"run=run-0003"))
    assert stack.runs["run-0003"].settings.changed() == {**changes, "max_tokens": 5}


# A busy browser: the page's events are kept for a while and then come all at once, as from a machine with other work.
BUSY = """const real = window.setTimeout.bind(window);
let kept = [];
window.setTimeout = (call, delay, message, ...rest) => {
  if (!message?.event_id) return real(call, delay, message, ...rest);
  if (!kept.length) real(() => { const calls = kept; kept = []; calls.forEach(c => c()); }, 400);
  return kept.push(() => call(message, ...rest));
};"""


def test_a_page_whose_browser_is_busy_misses_nothing_of_a_run(site: Site, stack: FakeStack) -> None:
    stack.token_s, stack.queue_s = 0.02, 0
    settings = Settings(seed=7, max_tokens=9, top_p=0.5)
    run_id = stack.submit("by link", settings)
    page = site.open()  # a first page, for its context
    page.context.add_init_script(BUSY)
    page.goto(f"{site.url}/?run={run_id}")
    wait_for_end(page)
    stack.token_s = 0.2
    page.click("#dl-run")
    page.wait_for_url(re.compile(r"run=run-0002"))
    again = stack.runs["run-0002"]
    assert (again.prompt, again.settings) == ("by link", settings)
    expect(page.locator("#dl-stop")).to_be_visible()
    wait_for_end(page)
    expect(page.locator("#dl-run")).to_be_enabled()


def test_stop_says_that_it_is_stopping_before_the_first_token_too(site: Site, stack: FakeStack) -> None:
    stack.queue_s = 30
    stack.deaf_s = 5.0
    page = site.open()
    page.click("#dl-run")
    run_in_address(page)
    page.click("#dl-stop")
    expect(page.locator("#dl-stop")).to_have_text("Stopping …")
    expect(page.locator("#dl-stop")).to_be_disabled()
    wait_for_end(page)
    stack.queue_s = stack.deaf_s = 0
    page.click("#dl-run")
    expect(page.locator("#dl-stop")).to_have_text("Stop")
    expect(page.locator("#dl-stop")).to_be_enabled()


def test_a_stop_that_failed_can_be_tried_again(site: Site, stack: FakeStack) -> None:
    stack.token_s, stack.failures["cancel"] = 0.2, broker_away()
    page = site.open()
    run(page)
    page.click("#dl-stop")
    expect(page.locator("[role=alert]")).to_contain_text("Redis does not answer")
    expect(page.locator("#dl-stop")).to_have_text("Stop")
    stack.failures.clear()
    page.click("#dl-stop")
    wait_for_end(page)


def test_buttons_step_from_token_to_token(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    page = site.open()
    assert not page.is_visible("#dl-steps button")
    page.click("#dl-run")
    wait_for_end(page)
    for step, position in (("1", 0), ("1", 1), ("1", 2), ("-1", 1), ("-1", 0), ("-1", 0)):
        page.click(f"[data-step='{step}']")
        page.wait_for_selector(f"#dl-inspector [data-position='{position}']")
        assert page.get_attribute("#dl-strip [aria-current]", "data-i") == str(position)
