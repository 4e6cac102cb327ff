"""Branching in a real browser: from a rival, from a typed text, and the tree that it makes."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Site, run, run_in_address, strip_text, wait_for_end
from tests.fakes.app import FakeStack

pytestmark = pytest.mark.browser


def inspect(page: Page, index: int) -> None:
    page.click(f"#dl-strip [data-i='{index}']")
    page.wait_for_selector(f"#dl-inspector [data-position='{index}']")


def wait_for_another(page: Page, run_id: str) -> str:
    page.wait_for_function("id => !location.search.includes(id)", arg=run_id)
    wait_for_end(page)
    return run_in_address(page)


def ended(site: Site) -> tuple[Page, str]:
    page = site.open()
    run(page)
    wait_for_end(page)
    return page, run_in_address(page)


def test_a_rival_becomes_the_token_of_a_new_run_with_the_same_beginning(site: Site, stack: FakeStack) -> None:
    page, parent_id = ended(site)
    inspect(page, 5)
    rival = page.locator("#dl-inspector [data-branch]").first
    token_id = int(rival.get_attribute("data-branch") or "")
    rival.click()
    child_id = wait_for_another(page, parent_id)
    parent, child = stack.run(parent_id), stack.run(child_id)
    assert (child.parent_id, child.fork_position, child.settings) == (parent_id, 5, parent.settings)
    assert [t.token_id for t in child.tokens[:5]] == [t.token_id for t in parent.tokens[:5]]
    put = next(c.piece for c in parent.tokens[5].candidates if c.token_id == token_id)
    assert child.tokens[5].piece == put
    assert strip_text(page) == child.text
    expect(page.locator("#dl-strip .dl-fork")).to_have_attribute("data-i", "5")


def test_a_typed_text_goes_in_and_the_tree_links_all_runs(site: Site, stack: FakeStack) -> None:
    page, parent_id = ended(site)
    assert page.locator(".dl-branches").count() == 0
    inspect(page, 3)
    page.fill("#dl-continue", " <b>Rome</b>")
    page.press("#dl-continue", "Enter")
    child_id = wait_for_another(page, parent_id)
    assert stack.run(child_id).tokens[3].piece == " <b>Rome</b>"
    tree = page.locator(".dl-branches li")
    expect(tree).to_have_count(2)
    assert page.locator(".dl-branches a[aria-current]").get_attribute("href") == f"./?run={child_id}"
    assert "<b>Rome</b>" in page.inner_text(".dl-branches")
    page.click(f".dl-branches a[href$='{parent_id}']")
    page.wait_for_url(re.compile(parent_id))
    wait_for_end(page)
    assert strip_text(page) == stack.run(parent_id).text
    expect(page.locator(".dl-branches a[aria-current]")).to_have_attribute("href", f"./?run={parent_id}")


def test_a_link_names_the_token_whose_inspector_is_open(site: Site) -> None:
    page, _ = ended(site)
    inspect(page, 4)
    page.wait_for_url(re.compile(r"token=4"))
    again = site.open(page.url.removeprefix(site.url))
    again.wait_for_selector("#dl-inspector [data-position='4']")
    expect(again.locator("#dl-strip [aria-current]")).to_have_attribute("data-i", "4")


def test_nothing_branches_while_the_run_goes_on_and_no_text_is_no_branch(site: Site, stack: FakeStack) -> None:
    stack.token_s = 0.3
    page = site.open()
    run(page)
    inspect(page, 1)
    page.locator("#dl-inspector [data-branch]").first.click()
    expect(page.locator("#dl-alert")).to_contain_text("still goes on")
    expect(page.locator("#dl-run")).to_be_hidden()
    assert len(stack.runs) == 1
    page.click("#dl-stop")
    wait_for_end(page)
    expect(page.locator("#dl-run")).to_be_enabled()
