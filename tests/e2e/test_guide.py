"""What helps a person in a real browser: the keyboard map, the first hints, presets, settings as JSON."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from models.sampling import Settings
from tests.e2e.conftest import Site, run, run_in_address, wait_for_end
from tests.fakes.app import FakeStack

pytestmark = pytest.mark.browser
HINTS = "#dl-guide [data-hint]:not([hidden])"


def field(page: Page, name: str) -> str:
    return page.input_value(f"#dl-c-{name}")


def test_the_keyboard_map_opens_by_key_holds_the_focus_and_closes(site: Site) -> None:
    page = site.open()
    page.focus("#dl-prompt textarea")
    page.keyboard.type("?")
    expect(page.locator("dialog.dl-keymap")).to_be_hidden()  # it is text there
    page.locator("#dl-prompt textarea").blur()
    page.keyboard.press("?")
    expect(page.locator("dialog.dl-keymap")).to_be_visible()
    for _ in range(4):
        page.keyboard.press("Tab")
        inside = "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        assert page.evaluate(inside)
    page.keyboard.press("Escape")
    expect(page.locator("dialog.dl-keymap")).to_be_hidden()


def test_the_key_of_the_prompt_finds_it_after_a_look_at_chat(site: Site) -> None:
    page = site.open()
    page.click("[data-mode='chat']")
    page.wait_for_selector(".dl-messages textarea")
    page.click("[data-mode='completion']")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("p")
    expect(page.locator("#dl-prompt textarea")).to_be_focused()


def test_its_keys_do_what_it_says_and_closing_it_stops_no_run(site: Site, stack: FakeStack) -> None:
    stack.token_s = 0.2
    page = site.open()
    run(page)
    page.locator("#dl-run, #dl-stop").first.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("3")
    expect(page.locator("[data-scale='surprisal']")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("?")
    page.keyboard.press("Escape")
    expect(page.locator("dialog.dl-keymap")).to_be_hidden()
    page.keyboard.press("t")
    assert page.evaluate("document.activeElement.matches('#dl-strip .dl-text')")
    page.keyboard.press("p")
    assert page.evaluate("document.activeElement.matches('#dl-prompt textarea')")
    assert next(iter(stack.runs.values())).cancelled_at is None


def test_three_hints_come_after_the_first_run_and_leave_for_good(site: Site) -> None:
    page = site.open()
    expect(page.locator(HINTS)).to_have_count(0)
    run(page)
    wait_for_end(page)
    expect(page.locator(HINTS)).to_have_count(3)
    page.click("#dl-strip [data-i='1']")
    expect(page.locator(HINTS)).to_have_count(2)
    page.click("[data-hint='compare'] [data-got-it]")
    page.click("[data-hint='history'] [data-got-it]")
    expect(page.locator(HINTS)).to_have_count(0)
    page.reload()
    wait_for_end(page)
    expect(page.locator(HINTS)).to_have_count(0)


def test_a_preset_fills_the_form_and_says_what_it_is(site: Site, stack: FakeStack) -> None:
    page = site.open()
    page.fill("#dl-c-top_k", "7")
    page.select_option("[data-preset]", "balanced")
    assert (field(page, "temperature"), field(page, "top_p"), field(page, "top_k")) == ("0.7", "0.9", "")
    expect(page.locator("#dl-preset-help")).to_contain_text("chat programs")
    page.fill("#dl-c-top_p", "0.8")
    assert page.input_value("[data-preset]") == ""
    page.select_option("[data-preset]", "greedy")
    run(page)
    assert stack.run(run_in_address(page)).settings.changed() == {"temperature": 0.0}


def test_settings_are_copied_and_pasted_as_json(site: Site) -> None:
    page = site.open()
    page.fill("#dl-c-temperature", "0.5")
    page.click("#dl-json > button")
    text = page.locator("#dl-json-text textarea")
    expect(text).to_have_value(re.compile("temperature"))
    copied = json.loads(text.input_value())
    assert copied == {"temperature": 0.5, "max_tokens": 128, "seed": int(field(page, "seed"))}
    pasted = Settings(top_p=0.75, stop=("\n\n",), seed=9, max_tokens=50)
    text.fill(json.dumps({**pasted.changed(), "seed": 9}))
    page.click("#dl-json-apply")
    expect(page.locator("#dl-c-top_p")).to_have_value("0.75")
    assert [field(page, name) for name in ("temperature", "seed", "max_tokens")] == ["", "9", "50"]
    text.fill("")  # so that what comes is the answer
    page.click("#dl-json-read")
    expect(text).to_have_value(re.compile("0.75"))
    assert Settings.parse_json(text.input_value()) == pasted
    text.fill('{"top_p": 7}')
    page.click("#dl-json-apply")
    expect(page.locator("#dl-alert")).to_contain_text("top_p")
    assert field(page, "top_p") == "0.75"
