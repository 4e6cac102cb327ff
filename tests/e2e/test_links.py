"""The ways between the pages in a real browser: from the playground to Compare with what stands there."""

import json
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from models.sampling import Settings
from tests.e2e.conftest import Site, wait_for_end
from tests.fakes.app import FakeStack

pytestmark = pytest.mark.browser

LINK = "#dl-compare-link a"
FIRST, SECOND = ("tr[data-field={}] td[data-arm='" + arm + "'] [data-input]" for arm in "01")


def carried(page: Page, *texts: str) -> None:
    """The link comes to hold what was typed last."""
    for text in texts:
        held = quote(json.dumps(text, ensure_ascii=False)[1:-1], safe="!*'()")
        expect(page.locator(LINK)).to_have_attribute("href", re.compile(re.escape(held)))


def to_compare(page: Page, *texts: str) -> None:
    carried(page, *texts)
    page.click(LINK)
    page.wait_for_selector("#dl-arms [data-add-arm]")


def test_prompt_and_settings_that_were_never_run_are_the_first_arms(site: Site, stack: FakeStack) -> None:
    prompt = 'A "prompt" & <b>more</b>\n北京 + 100 % #start=x'
    page = site.open()
    page.fill("#dl-prompt textarea", prompt)
    page.fill("#dl-c-temperature", "0.8")
    page.fill("#dl-c-seed", "77")
    page.fill("#dl-c-max_tokens", "9")
    to_compare(page, prompt, "0.8", "77", "9")
    expect(page.locator("#dl-prompt textarea")).to_have_value(prompt)
    expect(page.locator(FIRST.format("temperature"))).to_have_value("0.8")
    expect(page.locator(SECOND.format("temperature"))).to_have_value("0.8")
    expect(page.locator("#dl-c-seed")).to_have_value("77")
    page.fill(SECOND.format("top_k"), "5")
    page.click("#dl-run")
    page.wait_for_url(re.compile(r"/compare\?experiment=[^#]+$"))
    shared = Settings(temperature=0.8, seed=77, max_tokens=9)
    assert [run.settings for run in stack.runs.values()] == [shared, shared.with_changes(top_k=5)]
    assert {run.prompt for run in stack.runs.values()} == {prompt}


def test_the_link_opens_the_same_again_and_goes_back_to_it(site: Site, stack: FakeStack) -> None:
    page = site.open()
    page.fill("#dl-c-top_p", "0.75")
    to_compare(page, "0.75")
    expect(page.locator(FIRST.format("top_p"))).to_have_value("0.75")
    other = site.open(page.url.removeprefix(site.url))  # as if it had been sent to somebody
    expect(other.locator(FIRST.format("top_p"))).to_have_value("0.75")
    page.click("#dl-run")
    page.wait_for_url(re.compile("experiment="))
    page.go_back()
    page.wait_for_url(re.compile("#start="))
    expect(page.locator(FIRST.format("top_p"))).to_have_value("0.75")
    expect(page.locator(".dl-column")).to_have_count(0)


def test_a_run_opened_by_link_is_compared_with_its_own_settings(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    run_id = stack.submit("by link", Settings(seed=5, top_k=40, max_tokens=9, stop=("\n\n",)))
    page = site.open(f"/?run={run_id}")
    wait_for_end(page)
    to_compare(page, "by link", "40")
    expect(page.locator("#dl-prompt textarea")).to_have_value("by link")
    page.click("#dl-run")
    page.wait_for_url(re.compile("experiment="))
    first, second = list(stack.runs.values())[1:]
    assert first.settings == second.settings == stack.runs[run_id].settings


def test_a_chat_is_compared_as_its_template_sends_it(site: Site, stack: FakeStack) -> None:
    page = site.open()
    page.click("[data-mode='chat']")
    page.fill(".dl-messages textarea", "hi <b>")
    to_compare(page, "hi <b>")
    sent = "<|im_start|>user\nhi <b><|im_end|>\n<|im_start|>assistant\n"
    expect(page.locator("#dl-prompt textarea")).to_have_value(sent)
    page.click("#dl-run")
    page.wait_for_url(re.compile("experiment="))
    assert [(r.prompt, r.settings.parse_special) for r in stack.runs.values()] == [(sent, True)] * 2


@pytest.mark.parametrize(
    ("start", "words"),
    [("{nonsense", "damaged"), ("[1]", "damaged"), ('{"messages": [{"role": "cook"}]}', "message 1")],
)
def test_a_damaged_link_is_told_and_the_page_works(site: Site, stack: FakeStack, start: str, words: str) -> None:
    page = site.open(f"/compare#start={quote(start)}")
    expect(page.locator("[role=alert]")).to_contain_text(words)
    expect(page.locator("#dl-c-seed")).not_to_have_value("")
    page.click("#dl-run")
    page.wait_for_url(re.compile("experiment="))


def test_what_is_no_setting_is_left_out_of_a_link(site: Site, stack: FakeStack) -> None:
    odd = {"prompt": 5, "form": {"nonsense": "1", "seed": "3", "top_k": ["4"], "min_p": "0.1"}, "budget": "no"}
    page = site.open(f"/compare#start={quote(json.dumps(odd))}")
    expect(page.locator(FIRST.format("min_p"))).to_have_value("0.1")
    expect(page.locator("#dl-prompt textarea")).to_have_value("")
    expect(page.locator(FIRST.format("top_k"))).to_have_value("")
    expect(page.locator("#dl-c-seed")).not_to_have_value("")


def test_a_prompt_beyond_any_address_is_left_out_and_that_is_said(site: Site, stack: FakeStack) -> None:
    page = site.open()
    page.evaluate("""() => {
      const field = document.querySelector('#dl-prompt textarea');
      field.value = '北'.repeat(300_000);
      field.dispatchEvent(new Event('input', { bubbles: true }));
    }""")
    expect(page.locator(LINK)).to_have_attribute("title", re.compile("too long"))
    assert page.get_attribute(LINK, "href") == "./compare"


def test_what_was_typed_and_not_run_outlives_a_reload(site: Site, stack: FakeStack) -> None:
    page = site.open()
    page.fill("#dl-prompt textarea", "not run <b>")
    page.fill("#dl-c-temperature", "hot")  # wrong, and still what was typed
    page.fill("#dl-c-max_tokens", "9")
    carried(page, "not run <b>", "hot", "9")
    seed = page.input_value("#dl-c-seed")
    for is_reload in (True, False):
        if is_reload:
            page.reload()
        else:
            page.click("#dl-nav a >> text=History")
            page.click("#dl-nav a >> text=Playground")
        expect(page.locator("#dl-prompt textarea")).to_have_value("not run <b>")
        expect(page.locator("#dl-c-temperature")).to_have_value("hot")
        expect(page.locator("#dl-c-max_tokens")).to_have_value("9")
        expect(page.locator("#dl-c-seed")).to_have_value(seed)
    other = site.open()
    expect(other.locator("#dl-prompt textarea")).to_have_value("The capital of France is")


def test_a_draft_belongs_to_the_run_that_was_open(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    first, second = (stack.submit(prompt, Settings(seed=5, top_k=40)) for prompt in ("first", "second"))
    page = site.open(f"/?run={first}")
    wait_for_end(page)
    carried(page, "first")
    page.fill("#dl-prompt textarea", "first, and more")
    carried(page, "first, and more", "40")
    page.reload()
    wait_for_end(page)
    expect(page.locator("#dl-prompt textarea")).to_have_value("first, and more")
    expect(page.locator("#dl-c-top_k")).to_have_value("40")
    assert page.get_attribute("#dl-strip .dl-strip", "data-state") == "ended"
    page.goto(f"{site.url}/?run={second}")
    wait_for_end(page)
    expect(page.locator("#dl-prompt textarea")).to_have_value("second")


def test_a_draft_that_was_run_is_none_any_more(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    first = stack.submit("first", Settings(seed=5))
    page = site.open(f"/?run={first}")
    wait_for_end(page)
    page.fill("#dl-prompt textarea", "the next one")
    carried(page, "the next one")
    page.click("#dl-run")
    page.wait_for_function("id => !location.search.includes(id)", arg=first)
    wait_for_end(page)
    page.go_back()
    page.wait_for_url(re.compile(first))
    wait_for_end(page)
    expect(page.locator("#dl-prompt textarea")).to_have_value("first")


def test_a_draft_that_no_run_can_be_made_of_keeps_no_run_away(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    run_id = stack.submit("by link", Settings(seed=5))
    page = site.open(f"/?run={run_id}")
    wait_for_end(page)
    draft = json.dumps({"run": run_id, "hash": "", "start": json.dumps({"messages": []})})
    page.evaluate("draft => sessionStorage.setItem('decodelab.draft /', draft)", draft)
    page.reload()
    wait_for_end(page)
    expect(page.locator("#dl-prompt textarea")).to_have_value("by link")


def test_a_draft_of_a_chat_comes_back_as_one(site: Site, stack: FakeStack) -> None:
    page = site.open()
    page.click("[data-mode='chat']")
    page.fill(".dl-messages textarea", "hi <b>")
    carried(page, "hi <b>")
    page.reload()
    expect(page.locator(".dl-messages textarea")).to_have_value("hi <b>")
    expect(page.locator("[data-mode='chat']")).to_have_attribute("aria-checked", "true")


def test_the_playground_opens_a_link_to_prompt_and_settings(site: Site, stack: FakeStack) -> None:
    start = {"prompt": "by link", "form": {"top_k": "5"}, "budget": {"seed": "7"}}
    page = site.open(f"/#start={quote(json.dumps(start))}")
    expect(page.locator("#dl-prompt textarea")).to_have_value("by link")
    expect(page.locator("#dl-c-top_k")).to_have_value("5")
    page.click("#dl-run")
    page.wait_for_url(re.compile(r"/\?run=[^#]+$"))
    (run,) = stack.runs.values()
    assert (run.prompt, run.settings) == ("by link", Settings(seed=7, top_k=5))
    page = site.open(f"/#start={quote(json.dumps(start))}")
    expect(page.locator("#dl-prompt textarea")).to_have_value("by link")
    page.fill("#dl-prompt textarea", "more than the link")
    carried(page, "more than the link")
    page.reload()
    expect(page.locator("#dl-prompt textarea")).to_have_value("more than the link")
    expect(page.locator("#dl-c-top_k")).to_have_value("5")
    damaged = site.open("/#start=nonsense")
    expect(damaged.locator("[role=alert]")).to_contain_text("damaged")
    expect(damaged.locator("#dl-c-seed")).not_to_have_value("")
