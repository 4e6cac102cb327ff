"""The score page in a browser: what it shows is what was saved and what the examiner answered."""

import math
from dataclasses import replace

from playwright.sync_api import Page, expect

from models.errors import SettingError
from models.sampling import Settings
from tests.e2e.conftest import Site, run_in_address, strip_text
from tests.fakes.app import FakeStack, no_worker
from tests.fakes.scripted_runs import pieces_of

TEXT = " Paris. The city is known for its <b>art</b>\n\nand its museums."


def scored(site: Site, stack: FakeStack, text: str = TEXT) -> tuple[Page, str]:
    stack.token_s = 0.002
    page = site.open("/score")
    page.fill("#dl-given textarea", text)
    page.click("#dl-run")
    page.wait_for_selector("#dl-figures .dl-score-figures")
    return page, run_in_address(page)


def test_the_page_is_in_the_header_of_every_page(site: Site) -> None:
    page = site.open()
    page.click("#dl-nav >> text=Score")
    page.wait_for_selector("#dl-given")
    assert page.locator("#dl-nav [aria-current]").inner_text() == "Score"


def test_a_text_is_scored_with_its_settings(site: Site, stack: FakeStack) -> None:
    stack.token_s = 0.002
    page = site.open("/score")
    page.fill("#dl-prompt textarea", "The capital of France is")
    page.fill("#dl-given textarea", TEXT)
    page.fill("#dl-c-top_p", "0.9")
    page.click("#dl-run")
    page.wait_for_selector("#dl-figures .dl-score-figures")
    run = stack.run(run_in_address(page))
    assert (run.prompt, run.given_text, run.settings.top_p) == ("The capital of France is", TEXT, 0.9)
    assert strip_text(page) == TEXT
    assert len(run.tokens) == len(pieces_of(TEXT))
    mean = sum(t.raw_logprob for t in run.tokens) / len(run.tokens)
    shown = float(page.get_attribute('[data-figures="raw"]', "data-perplexity") or "nan")
    assert math.isclose(shown, math.exp(-mean), rel_tol=1e-12)
    assert f"{math.exp(-mean):.2f}" in page.inner_text('[data-figures="raw"]')


def test_the_first_impossible_token_is_a_link_into_the_strip(site: Site, stack: FakeStack) -> None:
    page, run_id = scored(site, stack)
    assert page.locator("[data-first-impossible]").count() == 0
    payloads = stack.runs[run_id].payloads
    index = next(i for i, p in enumerate(payloads) if getattr(p, "position", None) == 3)
    token = payloads[index]
    gone = tuple(
        replace(c, logprob=None, removed_by="top_k") if c.token_id == token.token_id else c for c in token.candidates
    )
    payloads[index] = replace(token, logprob=None, candidates=gone)
    page.reload()
    page.wait_for_selector("[data-first-impossible='3']")
    assert "removed by top_k" in page.inner_text("[data-first-impossible]")
    page.click("[data-first-impossible] [data-goto]")
    page.wait_for_selector("#dl-inspector [data-position='3']")
    expect(page.locator("#dl-strip [data-i='3']")).to_have_attribute("aria-current", "true")


def test_coverage_says_how_many_tokens_each_value_reaches(site: Site, stack: FakeStack) -> None:
    page, run_id = scored(site, stack)
    page.wait_for_selector(".dl-coverage figure >> nth=2")
    tokens = stack.run(run_id).tokens
    for p in (0.5, 0.8, 0.9, 0.95, 0.99):
        cell = page.inner_text(f'[data-control="top_p"] [data-value="{p:g}"]')
        assert int(cell) == sum(1 - math.exp(t.raw_logprob) <= p for t in tokens)
    for k in (1, 5, 10):
        assert int(page.inner_text(f'[data-control="top_k"] [data-value="{k}"]')) == sum(t.rank <= k for t in tokens)
    label = page.get_attribute('[data-control="min_p"] svg', "aria-label") or ""
    assert label.startswith(f"of {len(tokens)} tokens, min_p 0.5 reaches ")


def test_a_link_to_a_score_shows_it_again_whole(site: Site, stack: FakeStack) -> None:
    page, run_id = scored(site, stack)
    other = site.open(f"/score?run={run_id}")
    other.wait_for_selector(".dl-coverage figure >> nth=2")
    # Components are drawn one after the other, in an order of their own.
    other.wait_for_selector(f"#dl-strip [data-i='{len(stack.run(run_id).tokens) - 1}']")
    assert other.input_value("#dl-given textarea") == TEXT
    assert strip_text(other) == TEXT
    assert other.inner_text("#dl-figures") == page.inner_text("#dl-figures")


def test_a_link_to_a_generated_run_takes_its_prompt_text_and_settings(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0.0
    run_id = stack.submit("The capital", Settings(seed=5, top_k=40, max_tokens=9))
    page = site.open(f"/score?run={run_id}")
    expect(page.locator("#dl-given textarea")).to_have_value(stack.run(run_id).text)
    assert page.input_value("#dl-prompt textarea") == "The capital"
    assert page.input_value("#dl-c-top_k") == "40"
    assert len(stack.runs) == 1  # nothing is scored before somebody says so
    page.click("#dl-run")
    page.wait_for_selector("#dl-figures .dl-score-figures")
    assert run_in_address(page) != run_id
    assert stack.run(run_in_address(page)).given_text == stack.run(run_id).text


def test_a_refusal_stands_at_the_top_and_keeps_the_text(site: Site, stack: FakeStack) -> None:
    stack.failures["submit"] = no_worker()
    page = site.open("/score")
    page.fill("#dl-given textarea", TEXT)
    page.click("#dl-run")
    expect(page.locator(".dl-alert-on")).to_contain_text(no_worker().message)
    assert page.input_value("#dl-given textarea") == TEXT
    expect(page.locator("#dl-run")).to_be_enabled()


def test_what_keeps_coverage_from_being_known_stands_in_its_place(site: Site, stack: FakeStack) -> None:
    stack.examiner.failure = SettingError("temperature: at 0 nothing is truncated", field="temperature")
    page, _ = scored(site, stack)
    expect(page.locator("#dl-coverage")).to_contain_text("nothing is truncated")
    expect(page.locator(".dl-alert-on")).to_have_count(0)


def test_a_score_can_be_stopped(site: Site, stack: FakeStack) -> None:
    stack.token_s = 0.2
    page = site.open("/score")
    page.fill("#dl-given textarea", TEXT)
    page.click("#dl-run")
    page.wait_for_selector("#dl-strip [data-i='1']")
    page.click("#dl-stop")
    expect(page.locator("#dl-figures")).to_contain_text("Stopped by you")
    expect(page.locator(".dl-coverage")).to_have_count(0)
    assert stack.examiner.num_asked == 0
