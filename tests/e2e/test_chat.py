"""Chats in a real browser: written as rows, shown as they are sent, and there again when their link is opened."""

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Site, run_in_address, wait_for_end
from tests.fakes.app import FakeStack

pytestmark = pytest.mark.browser


def chatting(site: Site) -> Page:
    page = site.open()
    page.click("[data-mode='chat']")
    page.wait_for_selector(".dl-messages li textarea")
    return page


def test_the_prompt_becomes_the_first_message_and_the_template_is_shown(site: Site) -> None:
    page = chatting(site)
    expect(page.locator("#dl-prompt")).to_be_hidden()
    assert page.input_value(".dl-messages textarea") == "The capital of France is"
    page.fill(".dl-messages textarea", "<b>hi</b>")
    page.click("#dl-template summary")
    expect(page.locator(".dl-sent")).to_contain_text("<b>hi</b>")
    assert page.locator(".dl-sent .dl-chip").all_inner_texts() == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]
    expect(page.locator("#dl-count")).to_have_text("28 tokens")  # by hand: 3 + "user\n" 5 + 9 + 1 + "assistant\n" 10


def test_a_chat_is_sent_as_it_is_written_and_its_link_shows_its_messages(site: Site, stack: FakeStack) -> None:
    page = chatting(site)
    page.select_option(".dl-messages li select", "system")
    page.fill(".dl-messages textarea", "Be kind.")
    page.click("[data-add-message]")
    page.fill(".dl-messages li:last-child textarea", "hi")
    page.click("#dl-run")
    wait_for_end(page)
    run_id = run_in_address(page)
    said = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]
    assert stack.run(run_id).messages == said
    again = site.open(f"/?run={run_id}")
    wait_for_end(again)
    expect(again.locator("[data-mode='chat']")).to_have_attribute("aria-checked", "true")
    rows = again.locator(".dl-messages li")
    expect(rows).to_have_count(2)
    shown = [
        {"role": row.locator("select").input_value(), "content": row.locator("textarea").input_value()}
        for row in rows.all()
    ]
    assert shown == said
    again.click("[data-mode='completion']")
    expect(again.locator("#dl-prompt")).to_be_visible()


def test_rows_move_and_go_and_a_chat_without_any_is_refused_in_words(site: Site, stack: FakeStack) -> None:
    page = chatting(site)
    page.click("[data-add-message]")
    page.fill(".dl-messages li:last-child textarea", "second")
    page.click(".dl-messages li:last-child [data-do='up']")
    assert page.input_value(".dl-messages li:first-child textarea") == "second"
    for _ in range(2):
        page.click(".dl-messages li:last-child [data-do='remove']")
    page.click("#dl-run")
    expect(page.locator("#dl-alert")).to_contain_text("the chat has no message")
    assert not stack.runs
