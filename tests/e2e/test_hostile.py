"""Hostile texts of every kind on every page: each is shown as the text it is and does nothing."""

import json
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from app.overview import FailedRun
from app.render.text import spelled
from models.errors import BrokerUnavailableError, LimitError, NoWorkerError
from models.events import StopReason
from models.presence import WorkerPresence
from models.sampling import Settings
from tests.e2e.conftest import Site, run_in_address, strip_text, wait_for_end
from tests.fakes.app import FakeStack
from tests.fakes.hostile import IMAGE, KINDS, TYPED, hostile_tokens
from tests.fakes.scripted_runs import checkpoint_info

pytestmark = pytest.mark.browser

DID = """() => ({
  pwned: window.pwned ?? null,
  made: [...document.body.querySelectorAll('img, iframe, object, embed, base, [onerror], [onload], [onfocus], '
    + '[onmouseover], a[href^="javascript:" i]')].map((node) => node.outerHTML.slice(0, 200)),
  scripts: [...document.scripts].filter((script) => script.textContent.includes('pwned')).length,
  title: document.title,
})"""
NOTHING = {"pwned": None, "made": [], "scripts": 0, "title": "Decode Lab"}
STOPS = [KINDS[kind] for kind in ("script", "image", "double quote", "templates")]


def does_nothing(page: Page) -> None:
    assert page.evaluate(DID) == NOTHING


def shown_tokens(area: str, page: Page) -> str:
    """What a strip must show of `hostile_tokens`."""
    return strip_text(page, area).replace("?", "")


def choose_each(page: Page, area: str, inspector: str, number: int) -> None:
    """Hover and open every token."""
    for index in range(number):
        page.locator(f"{area} [data-i='{index}']").hover(position={"x": 1, "y": 1}, force=True)
        page.locator(f"{area} [data-i='{index}']").dispatch_event("click")
        page.wait_for_selector(f"{inspector} [data-position='{index}']")


def test_the_playground(site: Site, stack: FakeStack) -> None:
    stack.tail, stack.token_s = hostile_tokens(), 0
    page = site.open()
    page.fill("#dl-prompt textarea", TYPED)
    page.click("text=stops")
    page.fill("#dl-c-stop", "\n".join(STOPS))
    page.click("#dl-run")
    wait_for_end(page)
    run_id = run_in_address(page)
    assert stack.run(run_id).prompt == TYPED
    assert shown_tokens("#dl-strip .dl-text", page) == "".join(KINDS.values())
    choose_each(page, "#dl-strip", "#dl-inspector", len(stack.tail))
    page.click("#dl-strip [data-i='1']")
    expect(page.locator("#dl-inspector h3")).to_contain_text(IMAGE)
    rivals = page.locator("#dl-inspector .dl-rivals .dl-piece").all_text_contents()
    assert spelled(KINDS["double quote"]) in rivals
    facts = page.locator("#dl-facts").text_content() or ""
    assert all(spelled(stop) in facts for stop in STOPS)
    page.click("#dl-json > button")
    expect(page.locator("#dl-json-text textarea")).to_have_value(re.compile("pwned"))
    assert json.loads(page.input_value("#dl-json-text textarea"))["stop"] == STOPS
    page.click("#dl-json-apply")
    does_nothing(page)
    page.reload()
    wait_for_end(page)
    expect(page.locator("#dl-prompt textarea")).to_have_value(TYPED)
    does_nothing(page)


def test_branches_and_the_folds(site: Site, stack: FakeStack) -> None:
    stack.tail, stack.token_s, stack.queue_s = hostile_tokens(), 0, 0
    page = site.open(f"/?run={stack.submit('p', Settings(seed=1, top_p=0.9))}")
    wait_for_end(page)
    parent = run_in_address(page)
    for fold in ("influence", "what-if", "check", "replay"):
        page.click(f"[data-fold='{fold}'] > summary")
    for fold in ("check", "replay"):
        page.click(f"[data-fold='{fold}'] [data-ask]")
        page.wait_for_selector(f"[data-fold='{fold}'] [data-verdict]")
    page.fill("#dl-w-temperature", "2")
    page.wait_for_selector("[data-fold='what-if'] .dl-diverges")
    assert shown_tokens("[data-fold='what-if'] .dl-text", page) == "".join(KINDS.values())
    stack.examiner.failure = LimitError(TYPED)
    page.fill("#dl-w-temperature", "1.5")
    expect(page.locator("[data-fold='what-if'] .dl-fold-place")).to_contain_text(IMAGE)
    does_nothing(page)
    for text in (IMAGE, KINDS["single quote"], KINDS["both directions"]):
        page.goto(f"{site.url}/?run={parent}&token=2")
        page.wait_for_selector("#dl-inspector [data-position='2']")
        page.fill("#dl-continue", text)
        page.press("#dl-continue", "Enter")
        page.wait_for_function("id => !location.search.includes(id)", arg=parent)
        wait_for_end(page)
        expect(page.locator(".dl-branches")).to_contain_text(spelled(text))
        does_nothing(page)


def test_a_chat(site: Site, stack: FakeStack) -> None:
    stack.tail, stack.token_s = hostile_tokens(), 0
    page = site.open()
    page.click("[data-mode='chat']")
    page.fill(".dl-messages textarea", TYPED)
    page.click("#dl-template summary")
    expect(page.locator(".dl-sent")).to_contain_text(IMAGE)
    assert TYPED in (page.locator(".dl-sent").text_content() or "")
    page.click("#dl-run")
    wait_for_end(page)
    page.reload()
    wait_for_end(page)
    expect(page.locator(".dl-messages textarea")).to_have_value(TYPED)
    does_nothing(page)


def test_compare(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    texts = [" ".join(KINDS.values()), " ".join(reversed(KINDS.values())), TYPED]
    for arm, text in enumerate(texts):
        stack.texts[arm, 0] = text
    arms = [Settings(seed=1, top_k=k, stop=tuple(STOPS), max_tokens=4000) for k in range(3)]
    experiment_id, _ = stack.submit_comparison(TYPED, arms)
    page = site.open(f"/compare?experiment={experiment_id}")
    expect(page.locator(".dl-column[data-state=ended]")).to_have_count(3)
    expect(page.locator("#dl-run")).to_be_enabled()
    for number, text in enumerate(texts, start=1):
        assert strip_text(page, f".dl-column:nth-child({number}) .dl-text") == text
    page.click("[data-grid]")
    page.click("[data-diff]")
    page.wait_for_selector(".dl-column .dl-ins")
    assert any("onerror" in gone for gone in page.locator(".dl-del").all_text_contents())
    assert page.locator(".dl-cell .dl-start").first.text_content() == texts[0][:220]
    choose_each(page, ".dl-column:nth-child(1)", "#dl-inspectors", 8)
    page.locator("#dl-outcome [data-ledgers]").first.click()
    page.wait_for_selector("#dl-inspectors .dl-inspector >> nth=1")
    expect(page.locator("#dl-outcome .dl-divergence").first).to_contain_text("leaves A")
    expect(page.locator("#dl-prompt textarea")).to_have_value(TYPED)
    does_nothing(page)
    start = quote(json.dumps({"prompt": TYPED, "form": {"top_k": IMAGE}, "budget": {"seed": IMAGE}}))
    page.goto(f"{site.url}/compare#start={start}")
    page.reload()
    expect(page.locator("#dl-prompt textarea")).to_have_value(TYPED)
    expect(page.locator("tr[data-field=top_k] td[data-arm='0'] input")).to_have_value(IMAGE)
    page.click("#dl-run")
    expect(page.locator("[role=alert]")).to_contain_text("<img")
    does_nothing(page)


def test_score(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    page = site.open("/score")
    page.fill("#dl-prompt textarea", TYPED)
    page.fill("#dl-given textarea", TYPED)
    page.click("#dl-run")
    page.wait_for_selector("#dl-figures .dl-score-figures")
    assert strip_text(page) == TYPED
    page.wait_for_selector(".dl-coverage figure >> nth=2")
    choose_each(page, "#dl-strip", "#dl-inspector", 5)
    does_nothing(page)
    # What a run has said, be it text for a browser or not, is taken over.
    stack.tail = hostile_tokens()
    page.goto(f"{site.url}/score?run={stack.submit('p', Settings(seed=1))}")
    expect(page.locator("#dl-given textarea")).to_have_value(re.compile("onerror"))
    does_nothing(page)


@pytest.mark.parametrize("path", ["/?run=", "/compare?experiment=", "/compare?from=", "/score?run=", "/compare#start="])
@pytest.mark.parametrize("text", [IMAGE, KINDS["end tags"], KINDS["no character"] + KINDS["both directions"]])
def test_an_address(site: Site, path: str, text: str) -> None:
    page = site.open(path + quote(text))
    expect(page.locator(".dl-alert-on")).to_contain_text("damaged" if "#" in path else "There is no")
    does_nothing(page)


def test_refusals_and_the_line_at_the_top(site: Site, stack: FakeStack, monkeypatch: Any) -> None:
    info = checkpoint_info(name=IMAGE, device=IMAGE, dtype=IMAGE, source=IMAGE, architecture=IMAGE)
    workers = [WorkerPresence(IMAGE, IMAGE, 1, IMAGE, 4, 0, info, {IMAGE: IMAGE})]
    monkeypatch.setattr(stack, "workers", lambda: workers)
    stack.failures["submit"] = NoWorkerError(TYPED)
    page = site.open()
    expect(page.locator(".dl-status b")).to_have_text(IMAGE)
    page.click("#dl-run")
    expect(page.locator("[role=alert]")).to_contain_text(IMAGE)
    does_nothing(page)
    page.goto(f"{site.url}/status")
    expect(page.locator("#dl-overview [data-worker]").first).to_contain_text(IMAGE)
    does_nothing(page)


def test_status(site: Site, stack: FakeStack) -> None:
    stack.token_s = 30
    stack.submit(TYPED, Settings(seed=1))
    stack.failed = [FailedRun("a-run", TYPED, datetime.now(UTC), StopReason.WORKER_LOST, TYPED)]
    page = site.open("/status")
    expect(page.locator("#dl-overview section[aria-label='Waiting and running'] [data-run]")).to_contain_text(
        "<script>"
    )
    expect(page.locator("#dl-overview [data-run='a-run']")).to_contain_text("<script>")
    stack.failures["workers"] = BrokerUnavailableError(TYPED)
    expect(page.locator("#dl-overview .dl-problem")).to_contain_text(IMAGE)
    does_nothing(page)
