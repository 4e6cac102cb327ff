"""What is refused in the playground, in a real browser: a sentence that says what to do, and nothing is lost."""

from typing import Any

import pytest
from playwright.sync_api import expect

from models.errors import PromptError
from tests.e2e.conftest import Site
from tests.fakes.app import FakeStack, broker_away, no_worker

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (PromptError("The prompt has 9,000 tokens and the checkpoint 8,192 positions; shorten it."), "9,000 tokens"),
        (no_worker(), "decodelab worker"),
        (broker_away(), "Redis does not answer"),
    ],
)
def test_a_refusal_is_a_sentence_and_keeps_the_prompt(site: Site, stack: FakeStack, failure: Any, words: str) -> None:
    stack.failures["submit"] = failure
    page = site.open()
    page.fill("#dl-prompt textarea", "keep me")
    page.click("#dl-run")
    expect(page.locator("[role=alert]")).to_contain_text(words)
    assert page.input_value("#dl-prompt textarea") == "keep me"
    assert page.is_visible("#dl-run")
    assert "run=" not in page.url
    stack.failures.clear()
    page.click("#dl-run")
    page.wait_for_selector("#dl-strip [data-i='0']")
    expect(page.locator("[role=alert]")).to_have_text("")


def test_an_empty_prompt_and_a_wrong_setting_are_refused_by_name(site: Site) -> None:
    page = site.open()
    page.fill("#dl-prompt textarea", "")
    page.click("#dl-run")
    expect(page.locator("[role=alert]")).to_contain_text("The prompt is empty")
    page.fill("#dl-prompt textarea", "x")
    page.fill("#dl-c-top_p", "1.5")
    page.click("#dl-run")
    expect(page.locator("[role=alert]")).to_contain_text("top_p: input should be less than or equal to 1, got 1.5")
    refused = page.locator("[aria-invalid=true]")
    expect(refused).to_have_attribute("id", "dl-c-top_p")
    page.fill("#dl-c-top_p", "0.5")
    page.click("text=penalties")
    page.fill("#dl-c-repetition_penalty", "0")
    page.click("text=penalties")
    page.click("#dl-run")
    expect(refused).to_have_attribute("id", "dl-c-repetition_penalty")
    expect(refused).to_be_visible()
    page.fill("#dl-c-repetition_penalty", "1.1")
    page.click("#dl-run")
    expect(refused).to_have_count(0)


def test_a_refusal_is_seen_by_who_has_scrolled_down(site: Site) -> None:
    page = site.open(viewport={"width": 480, "height": 500})
    page.fill("#dl-prompt textarea", "")
    page.mouse.wheel(0, 250)
    page.wait_for_timeout(200)
    page.keyboard.press("Control+Enter")
    expect(page.locator("[role=alert]")).to_contain_text("The prompt is empty")
    expect(page.locator(".dl-alert-on")).to_be_in_viewport(ratio=1)


def test_no_worker_is_told_with_the_command_and_comes_back_by_itself(site: Site, stack: FakeStack) -> None:
    stack.failures["workers"] = broker_away()
    page = site.open()
    expect(page.locator("#dl-status")).to_contain_text("The queue does not answer")
    stack.failures.clear()
    expect(page.locator("#dl-status")).to_contain_text("135 M parameters")
