"""A comparison's title and star in a real browser over a real database: given on its page, kept for the history."""

import re

import pytest
from playwright.sync_api import Page, expect

from models.db.experiments import Experiment
from tests.e2e.conftest import Site
from tests.e2e.saved_site import Saved

pytestmark = pytest.mark.browser

HOSTILE = '"><img src=x onerror="window.pwned=1">{{7*7}}'
TITLE, STAR, SAID = ".dl-kept input", ".dl-kept [data-star]", ".dl-kept [role=status]"


def stored(saved: Saved, experiment_id: str) -> Experiment:
    with saved.database.read() as session:
        return session.get_one(Experiment, experiment_id)


def opened(site: Site, experiment_id: str) -> Page:
    page = site.open(f"/compare?experiment={experiment_id}")
    page.wait_for_selector(TITLE)
    return page


def rename(page: Page, title: str) -> None:
    page.fill(TITLE, title)
    page.press(TITLE, "Enter")
    expect(page.locator(SAID)).to_have_text("saved")


def test_title_and_star_are_kept_and_shown_by_the_link_and_the_history(saved_site: Site, saved: Saved) -> None:
    experiment_id, arms = saved.comparison("a prompt", 2)
    other, _ = saved.comparison("another", 2)
    page = opened(saved_site, experiment_id)
    expect(page.locator(STAR)).to_have_attribute("aria-pressed", "false")
    rename(page, f"  {HOSTILE} ")
    expect(page.locator(TITLE)).to_have_value(HOSTILE)
    page.click(STAR)
    expect(page.locator(STAR)).to_have_attribute("aria-pressed", "true")
    row = stored(saved, experiment_id)
    assert (row.title, row.is_starred) == (HOSTILE, True)
    assert not any(saved.row(run_id).is_starred for run_id in arms)  # type: ignore[union-attr]
    page.reload()
    expect(page.locator(TITLE)).to_have_value(HOSTILE)
    expect(page.locator(STAR)).to_have_attribute("aria-pressed", "true")
    history = saved_site.open("/history")
    lines = history.locator("[data-comparison]")
    expect(lines).to_have_count(2)
    line = history.locator(f"[data-comparison='{experiment_id}']")
    expect(line.locator(".dl-start")).to_have_text(HOSTILE)
    expect(line.locator("[data-star]")).to_have_attribute("aria-pressed", "true")
    expect(history.locator(f"[data-comparison='{other}'] [data-star]")).to_have_attribute("aria-pressed", "false")
    for one in (page, history):
        assert one.evaluate("window.pwned") is None
        assert one.locator("img").count() == 0


def test_a_title_leaves_the_note_and_can_be_taken_away(saved_site: Site, saved: Saved) -> None:
    experiment_id, _ = saved.comparison("a prompt", 2)
    with saved.database.write() as session:
        session.get_one(Experiment, experiment_id).note = "why"
    page = opened(saved_site, experiment_id)
    rename(page, "one")
    assert (stored(saved, experiment_id).title, stored(saved, experiment_id).note) == ("one", "why")
    page.fill(TITLE, "not this")
    page.press(TITLE, "Escape")
    expect(page.locator(TITLE)).to_have_value("one")
    rename(page, "")
    assert (stored(saved, experiment_id).title, stored(saved, experiment_id).note) == (None, "why")


def test_leaving_the_field_saves_too_and_a_deleted_comparison_is_told(saved_site: Site, saved: Saved) -> None:
    experiment_id, _ = saved.comparison("a prompt", 2)
    page = opened(saved_site, experiment_id)
    page.fill(TITLE, "by leaving")
    page.focus("#dl-prompt textarea")
    expect(page.locator(SAID)).to_have_text("saved")
    assert stored(saved, experiment_id).title == "by leaving"
    with saved.database.write() as session:
        session.delete(session.get_one(Experiment, experiment_id))
    page.fill(TITLE, "too late")
    page.press(TITLE, "Enter")
    expect(page.locator(SAID)).to_contain_text("There is no comparison")
    expect(page.locator(TITLE)).to_have_value("too late")


def test_a_page_without_a_comparison_names_none(saved_site: Site) -> None:
    page = saved_site.open("/compare")
    page.wait_for_selector("#dl-arms [data-add-arm]")
    expect(page.locator(".dl-kept")).to_be_hidden()


def test_the_history_stars_comparisons_and_finds_them_by_it(saved_site: Site, saved: Saved) -> None:
    first, _ = saved.comparison("first", 3)
    second, arms = saved.comparison("second", 2)
    alone = saved.run("alone", is_starred=True)
    saved.run("neither")
    page = saved_site.open("/history")
    line = page.locator(f"[data-comparison='{first}']")
    line.locator("[data-star]").click()
    expect(line.locator("[data-star]")).to_have_attribute("aria-pressed", "true")
    assert stored(saved, first).is_starred
    line.focus()
    page.keyboard.press("s")
    expect(line.locator("[data-star]")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("s")
    expect(line.locator("[data-star]")).to_have_attribute("aria-pressed", "true")
    page.locator(f"[data-comparison='{second}'] [data-unfold]").click()
    page.locator(f"[data-run='{arms[1]}'] [data-star]").click()
    expect(page.locator(f"[data-run='{arms[1]}'] [data-star]")).to_have_attribute("aria-pressed", "true")
    page.goto(f"{saved_site.url}/history?starred=yes")
    shown = (
        """() => [...document.querySelectorAll('.dl-place tbody tr')].map(r => r.dataset.run || r.dataset.comparison)"""
    )
    page.wait_for_selector("[data-comparison]")
    # A starred comparison is one line; one without a star is here only by its starred run.
    assert page.evaluate(shown) == [alone, arms[1], first]
    page.click(f"[data-comparison='{first}'] .dl-pick")
    page.click("[data-do=unstar]")
    expect(page.locator(f"[data-comparison='{first}'] [data-star]")).to_have_attribute("aria-pressed", "false")
    assert not stored(saved, first).is_starred
    page.click(f"[data-comparison='{first}'] .dl-start a")
    page.wait_for_url(re.compile(f"experiment={first}"))
