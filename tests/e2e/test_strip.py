"""The token strip in a real browser: true text, whatever the text is, and its colours."""

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Site, run, strip_text, wait_for_end
from tests.fakes.app import FakeStack
from tests.fakes.scripted_runs import token

pytestmark = pytest.mark.browser


HOSTILE = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script></span>&amp;{{7*7}}${7*7}`'


def test_hostile_text_is_inert_everywhere(site: Site, stack: FakeStack) -> None:
    stack.text = " a " + HOSTILE + "\n b"
    page = site.open()
    page.fill("#dl-prompt textarea", HOSTILE)
    page.click("#dl-run")
    wait_for_end(page)
    assert strip_text(page) == stack.text
    page.hover("#dl-strip [data-i='2']")
    for index in range(4):
        page.click(f"#dl-strip [data-i='{index}']")
        page.wait_for_selector(f"#dl-inspector [data-position='{index}']")
    page.goto(site.url + "/history")
    page.wait_for_selector("[data-run]")
    assert "<img src=x" in page.inner_text("#dl-table")
    page.goto(site.url + "/?run=" + "%3Cimg%20src=x%20onerror=window.pwned=1%3E")
    expect(page.locator("[role=alert]")).to_contain_text("There is no run")
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0


def test_odd_tokens_are_marked(site: Site, stack: FakeStack) -> None:
    stack.tail = [
        token(0, " a"),
        token(1, "x1", piece="", text="", token_bytes=b"\xf0\x9f"),
        token(2, "😀"),
        token(3, "abSTOP", text="ab"),
        token(4, "more", text="", visible=False, withheld=True),
    ]
    page = site.open()
    page.click("#dl-run")
    wait_for_end(page)
    assert strip_text(page) == " a😀ab"
    chips = page.locator("#dl-strip .dl-chip").all_inner_texts()
    assert chips == ["f0 9f", "more", "<|im_end|>"]
    assert page.inner_text("#dl-strip s") == "STOP"


def test_scales_colour_every_token_and_say_how(site: Site) -> None:
    page = site.open()
    run(page)
    wait_for_end(page)
    shades = set()
    for name in ("processed", "raw", "surprisal", "entropy", "rank"):
        page.click(f"[data-scale='{name}']")
        assert page.locator("#dl-strip .dl-t:not([data-shade])").count() == 0
        assert page.locator(".dl-legend li").count() == 8
        shades.add(tuple(page.eval_on_selector_all("#dl-strip .dl-t", "all => all.map(t => t.dataset.shade)")))
    assert len(shades) >= 4


def test_an_impossible_token_has_the_last_shade_and_says_so(site: Site, stack: FakeStack) -> None:
    """Without a processed number, which is not the number 0."""
    stack.tail = [token(0, " a"), token(1, " b", logprob=None), token(2, " c")]
    page = site.open()
    page.click("#dl-run")
    wait_for_end(page)
    page.click("[data-scale='processed']")
    impossible = page.locator("#dl-strip [data-i='1']")
    assert impossible.get_attribute("data-shade") == "7"
    impossible.hover()
    assert page.locator("text=processed impossible").count() == 1


def test_a_line_break_can_be_seen_and_chosen(site: Site, stack: FakeStack) -> None:
    stack.tail = [token(0, " a"), token(1, "\n\n"), token(2, "b")]
    page = site.open()
    page.click("#dl-run")
    wait_for_end(page)
    box = page.eval_on_selector("#dl-strip [data-i='1']", "t => t.getClientRects()[0].toJSON()")
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#dl-inspector [data-position='1']")
    assert strip_text(page) == " a\n\nb"
