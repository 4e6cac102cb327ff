"""The history's filters by settings in a real browser: typed, in the address, and as chips."""

import re

import pytest
from playwright.sync_api import expect

from models.sampling import Settings
from tests.e2e.conftest import Site
from tests.e2e.saved_site import Saved
from tests.e2e.test_history import expect_runs, history

pytestmark = pytest.mark.browser


def test_settings_filter_by_value_and_by_range(saved_site: Site, saved: Saved) -> None:
    low = saved.run(settings=Settings(seed=1, top_p=0.5, top_k=40))
    high = saved.run(settings=Settings(seed=2, top_p=0.9, top_k=40))
    neutral = saved.run(settings=Settings(seed=2**64 - 1))
    page = history(saved_site, "?top_p=0.5..0.9&top_k=40")
    expect_runs(page, [high, low])
    chips = page.locator(".dl-chips [data-drop]")
    assert [c.split("×")[0].strip() for c in chips.all_inner_texts()] == ["top_k 40", "top_p 0.5 to 0.9"]
    page.click("[data-filters]")
    expect(page.locator("input[name=top_p]")).to_have_value("0.5..0.9")
    page.fill("input[name=top_p]", "0.6..")
    page.press("input[name=top_p]", "Enter")
    expect_runs(page, [high])
    page.click("[data-drop=top_p]")
    expect_runs(page, [high, low])
    page.click("[data-drop=top_k]")
    expect_runs(page, [neutral, high, low])
    page.fill("input[name=seed]", str(2**64 - 1))
    page.press("input[name=seed]", "Enter")
    expect_runs(page, [neutral])
    assert f"seed={2**64 - 1}" in page.url
    assert "top_p" not in page.url


def test_a_range_that_is_none_is_marked_and_does_not_filter(saved_site: Site, saved: Saved) -> None:
    run_id = saved.run()
    page = history(saved_site)
    page.click("[data-filters]")
    marked = "[...document.querySelectorAll('.dl-all-filters input:invalid')].map(i => i.name)"
    for typed, is_wrong in {
        "0.5": 0,
        "0.5..": 0,
        "..0.9": 0,
        ".5..1": 0,
        "-1": 0,
        "hot": 1,
        "..": 1,
        "1..2..3": 1,
    }.items():
        page.fill("input[name=min_p]", typed)
        assert page.evaluate(marked) == ["min_p"] * is_wrong, typed
    page.press("input[name=min_p]", "Enter")
    page.wait_for_url(re.compile("min_p="))
    expect_runs(page, [run_id])
    expect(page.locator(".dl-chips")).to_be_empty()
