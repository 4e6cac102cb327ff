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


def test_a_long_text_is_laid_out_in_parts_and_stays_one_text(site: Site, stack: FakeStack) -> None:
    """A part ends with a line break; what is shown, counted and copied is the text itself."""
    pieces = ["one", " two", "\n", "  three", ".\n", "\n\n", "fo\nur", " five\n", "six"]
    stack.tail = [token(i, piece) for i, piece in enumerate(pieces)]
    page = site.open()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#dl-run")
    wait_for_end(page)
    text = "".join(pieces)
    assert strip_text(page) == text
    assert page.locator("#dl-strip .dl-block").count() == 5
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#dl-strip .dl-text'))")
    page.keyboard.press("Control+c")
    assert page.evaluate("navigator.clipboard.readText()").startswith(text)
    tops = page.eval_on_selector_all(
        "#dl-strip .dl-t",
        "tokens => tokens.map(t => { const boxes = t.getClientRects(); return boxes[boxes.length - 1].top; })",
    )
    line = tops[1] - tops[0]
    assert line == 0, "one and two stand on one line"
    height = tops[8] - tops[7]
    assert tops[3] - tops[0] == height, "a line break is one line"
    assert tops[6] - tops[4] == pytest.approx(4 * height, abs=1), "an empty line is kept"


def test_a_long_run_draws_each_token_once_and_keeps_what_is_drawn(site: Site, stack: FakeStack) -> None:
    number = 4000
    stack.text, stack.token_s = " a" * number, 0.0005
    page = site.open()
    page.fill("#dl-c-max_tokens", str(number))
    page.evaluate("""() => {
      window.drawn = new Set();
      const area = document.querySelector('#dl-strip .dl-text');
      new MutationObserver((records) => records.forEach((r) => {
        [...r.addedNodes].filter((n) => n.dataset?.i !== undefined).forEach((n) => window.drawn.add(n));
      })).observe(area, { childList: true, subtree: true });
    }""")
    page.click("#dl-run")
    page.wait_for_selector("#dl-strip [data-i='0']")
    page.evaluate("document.querySelector('#dl-strip [data-i=\"0\"]').isTheFirst = true")
    wait_for_end(page)
    assert page.locator("#dl-strip .dl-t").count() == number
    assert page.evaluate("window.drawn.size") == number
    assert page.evaluate("document.querySelector('#dl-strip [data-i=\"0\"]').isTheFirst") is True
    # The last token is found without a search: the page is asked for nothing when one is chosen.
    page.evaluate("""() => {
      window.searches = 0;
      const area = document.querySelector('#dl-strip .dl-text');
      const search = area.querySelector.bind(area);
      area.querySelector = (selector) => { window.searches += 1; return search(selector); };
    }""")
    page.focus("#dl-strip .dl-text")
    page.keyboard.press("End")
    expect(page.locator("#dl-strip [aria-current]")).to_have_attribute("data-i", str(number - 1))
    page.click("[data-scale='rank']")
    assert page.evaluate("window.searches") == 0
