"""A text without line breaks: the strip lays it out in blocks and it looks, reads and copies as one."""

import random
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Site, strip_text, wait_for_end
from tests.fakes.app import FakeStack
from tests.fakes.scripted_runs import token

pytestmark = pytest.mark.browser

BLOCKS = "#dl-strip .dl-block"

# Where every token begins to be seen and ends, as the strip has them, and as one block of the same nodes would.
PLACES = """() => {
  const area = document.querySelector('#dl-strip .dl-text');
  const places = (root) => [...root.querySelectorAll('.dl-t')].map((node) => {
    const boxes = node.getClientRects();
    const { right, top } = boxes[boxes.length - 1];
    return [Math.round(right), Math.round(top - root.getBoundingClientRect().top)];
  });
  const whole = document.createElement('div');
  whole.className = 'dl-block';
  const text = new Map([...area.querySelectorAll('.dl-t')].map((node) => [node, node.textContent]));
  for (const gap of area.querySelectorAll('.dl-gap')) {
    const node = gap.parentNode.nextElementSibling.firstChild;
    text.set(node, gap.textContent + text.get(node));
  }
  for (const node of area.querySelectorAll('.dl-t')) {
    const copy = node.cloneNode(true);
    if (!copy.children.length) copy.textContent = text.get(node);
    whole.append(copy);
  }
  const found = places(area);
  const height = area.scrollHeight;
  const other = area.cloneNode(false);
  other.append(whole);
  area.after(other);
  const expected = places(other);
  const otherHeight = other.scrollHeight;
  other.remove();
  return { found, expected, height, otherHeight };
}"""


def long_text(kind: str) -> list[str]:
    """1,200 tokens without a line break."""
    draw = random.Random(kind)
    words = [" a", " the", " city", "s", ",", " -", "half-", "way", " extraordinarily", ".", "  two", " 北", "京", "市"]
    match kind:
        case "words":
            return [draw.choice(words) for _ in range(1200)]
        case "one word":
            return ["abcdefgh"[: draw.randint(1, 8)] for _ in range(1200)]
        case "chinese":
            return [draw.choice("北京市天地玄黄") for _ in range(1200)]
        case _:
            return [draw.choice([" שלום", " world", " (12)", " مرحبا"]) for _ in range(1200)]


def shown(site: Site, stack: FakeStack, pieces: list[str], **context: Any) -> Page:
    stack.tail, stack.token_s = [token(i, piece) for i, piece in enumerate(pieces)], 0.001
    page = site.open(**context)
    page.fill("#dl-c-max_tokens", str(len(pieces)))
    page.evaluate("""() => {
      window.longest = 0;
      new MutationObserver(() => {
        const blocks = document.querySelectorAll('#dl-strip .dl-block');
        window.longest = Math.max(window.longest, blocks[blocks.length - 1].childNodes.length);
      }).observe(document.querySelector('#dl-strip .dl-text'), { childList: true, subtree: true });
    }""")
    page.click("#dl-run")
    wait_for_end(page)
    return page


@pytest.mark.parametrize("kind", ["words", "chinese", "one word"])
def test_it_looks_as_if_it_were_one_block(site: Site, stack: FakeStack, kind: str) -> None:
    pieces = long_text(kind)
    page = shown(site, stack, pieces)
    assert strip_text(page) == "".join(pieces)
    places = page.evaluate(PLACES)
    assert places["found"] == places["expected"]
    assert places["height"] == places["otherHeight"]
    assert page.locator("#dl-strip [data-i]").count() == len(pieces)
    if kind != "one word":  # whose lines end within tokens
        assert page.locator(BLOCKS).count() > 2


def test_what_is_laid_out_anew_stays_short(site: Site, stack: FakeStack) -> None:
    page = shown(site, stack, long_text("words") * 3)
    # What came while the page was busy is drawn at once, so a block may be longer than the limit for a moment.
    assert page.evaluate("longest") < 1200
    assert page.locator(BLOCKS).count() > 4


def test_another_width_wraps_the_whole_text_anew(site: Site, stack: FakeStack) -> None:
    pieces = long_text("words")
    page = shown(site, stack, pieces)
    assert page.locator(BLOCKS).count() > 2
    page.set_viewport_size({"width": 1100, "height": 900})
    expect(page.locator(BLOCKS)).to_have_count(1)
    expect(page.locator("#dl-strip .dl-gap")).to_have_count(0)
    assert strip_text(page) == "".join(pieces)
    assert page.locator("#dl-strip [data-i]").all_text_contents() == pieces
    places = page.evaluate(PLACES)
    assert places["found"] == places["expected"]


def test_it_is_copied_and_coloured_as_one_text(site: Site, stack: FakeStack) -> None:
    pieces = long_text("words")
    page = shown(site, stack, pieces)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    assert page.locator("#dl-strip .dl-gap").count() > 0
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#dl-strip .dl-text'))")
    page.keyboard.press("Control+c")
    assert page.evaluate("navigator.clipboard.readText()") == "".join(pieces)
    page.click("[data-scale='rank']")
    unlike = """() => [...document.querySelectorAll('#dl-strip .dl-gap')].filter((gap) =>
      gap.dataset.shade !== gap.parentNode.nextElementSibling.firstChild.dataset.shade).length"""
    assert page.evaluate(unlike) == 0


def test_text_of_both_directions_stays_in_one_block(site: Site, stack: FakeStack) -> None:
    pieces = long_text("both directions")
    page = shown(site, stack, pieces)
    assert strip_text(page) == "".join(pieces)
    assert page.locator(BLOCKS).count() == 1
