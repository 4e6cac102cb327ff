"""Hostile texts of every kind in the history: lines, tags, chips, address, editing, and what they lead to."""

import re
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from app.render.text import clipped
from tests.e2e.conftest import Site
from tests.e2e.saved_site import Saved
from tests.e2e.test_hostile import does_nothing
from tests.fakes.hostile import IMAGE, KINDS, TYPED

pytestmark = pytest.mark.browser

TAGS = ["<svg onload=window.pwned=1>", "'\"><img src=x onerror=window.pwned=1>", "\u202eevil\u202c", "{{7*7}}${7*7}"]


def test_every_kind_is_text_in_its_line(saved_site: Site, saved: Saved) -> None:
    runs = {saved.run(text, text, note=text, tags=[TAGS[0]]): text for text in KINDS.values()}
    page = saved_site.open("/history")
    page.wait_for_selector(".dl-place [data-run]")
    for run_id, text in runs.items():
        cells = page.locator(f"[data-run='{run_id}']")
        assert cells.locator(".dl-said").text_content() == unescape(clipped(text, 90))
        assert unescape(clipped(text, 80)) in (cells.locator(".dl-start").text_content() or "")
    does_nothing(page)


def test_titles_tags_search_chips_and_address(saved_site: Site, saved: Saved) -> None:
    run_id = saved.run(TYPED, TYPED, title=TYPED[:200], tags=TAGS)
    experiment_id, _ = saved.comparison(TYPED, 2)
    page = saved_site.open("/history")
    line = page.locator(f"[data-run='{run_id}']")
    line.wait_for()
    assert line.locator(".dl-tag").all_text_contents() == TAGS
    line.focus()
    page.keyboard.press("e")
    assert page.input_value(".dl-editing [name=title]") == TYPED[:200]
    page.fill(".dl-editing [name=note]", TYPED[:3000])
    page.press(".dl-editing [name=note]", "Enter")
    expect(page.locator(".dl-editing")).to_have_count(0)
    expect(line.locator(".dl-start")).to_contain_text("<script>")
    page.locator(f"[data-comparison='{experiment_id}']").focus()
    page.keyboard.press("e")
    page.fill(".dl-editing [name=title]", IMAGE)
    page.keyboard.press("Enter")
    expect(page.locator(f"[data-comparison='{experiment_id}'] b")).to_have_text(IMAGE)
    does_nothing(page)
    for number, tag in enumerate(TAGS):
        line.locator(".dl-tag").nth(number).dispatch_event("click")  # a cell clips what is too wide
        chip = page.locator(".dl-chips [data-drop=tag]")
        expect(chip).to_have_text(f"tag: {tag}×")
        does_nothing(page)
        chip.click()
        expect(chip).to_have_count(0)
    page.fill("input[name=q]", IMAGE)
    page.wait_for_url(re.compile("q="))
    expect(page.locator(".dl-place [data-run]")).not_to_have_count(0)
    page.fill("input[name=q]", "<>'\"")
    expect(page.locator(".dl-notice")).to_contain_text("There is no word in")
    does_nothing(page)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("q", "image"), ("tag", "end tags"), ("checkpoint", "double quote"), ("stop", "image"), ("since", "no character"),
     ("sort", "single quote"), ("<b>", "image")],
)  # fmt: skip
def test_an_address_of_any_kind(saved_site: Site, saved: Saved, name: str, kind: str) -> None:
    saved.run()
    page = saved_site.open(f"/history?{quote(name)}={quote(KINDS[kind])}")
    page.wait_for_selector(".dl-place > *, .dl-notice:not(:empty)")
    does_nothing(page)


def test_a_saved_run_is_taken_over_as_the_text_it_is(saved_site: Site, saved: Saved) -> None:
    text = "".join(text for kind, text in KINDS.items() if kind != "long")
    page = saved_site.open(f"/score?run={saved.run(TYPED, text)}")
    expect(page.locator("#dl-prompt textarea")).to_have_value(TYPED)
    assert page.input_value("#dl-given textarea") == text
    does_nothing(page)


def test_a_file_to_import_is_told_of_as_text(saved_site: Site, saved: Saved, tmp_path: Path) -> None:
    page = saved_site.open("/history")
    page.wait_for_selector(".dl-place > *")
    file = tmp_path / "a<img src=x onerror=window.pwned=1>.jsonl"
    file.write_text('{"id": "<img src=x onerror=window.pwned=1>", "record": {"run": {"id": "<img src=x>"}}}\n')
    page.set_input_files("[data-import]", file)
    expect(page.locator(".dl-notice")).to_contain_text("refused")
    expect(page.locator(".dl-notice")).to_contain_text("<img src=x")
    does_nothing(page)
