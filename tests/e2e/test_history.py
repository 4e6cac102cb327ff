"""The history in a real browser over a real database: the page shows what is stored, and what it does is done."""

import re
from typing import Any

import orjson
import pytest
from playwright.sync_api import Locator, Page, expect
from sqlalchemy import update

from models.db.experiments import Experiment
from models.db.runs import Run
from models.events import StopReason
from models.sampling import Settings
from tests.e2e.conftest import Site
from tests.e2e.saved_site import Saved

pytestmark = pytest.mark.browser


def history(site: Site, query: str = "", **options: Any) -> Page:
    page = site.open(f"/history{query}", **options)
    page.wait_for_selector(".dl-place > *")
    return page


def shown(page: Page) -> list[str]:
    """The ids of the runs in the table, from the top."""
    return page.eval_on_selector_all(".dl-place [data-run]", "rows => rows.map(row => row.dataset.run)")


def line(page: Page, run_id: str) -> Locator:
    return page.locator(f"[data-run='{run_id}']")


def expect_runs(page: Page, ids: list[str]) -> None:
    """The table comes to show exactly these, in this order."""
    page.wait_for_function(
        "ids => JSON.stringify([...document.querySelectorAll('.dl-place [data-run]')].map(r => r.dataset.run)) === ids",
        arg=orjson.dumps(ids).decode(),
    )


def test_a_line_shows_what_is_stored_and_opens_its_run(saved_site: Site, saved: Saved) -> None:
    run_id = saved.run(
        "<b>&", " a <i>text", settings=Settings(seed=1, top_k=4), num_tokens=1234, mean_logprob=-1.5, is_starred=True,
        tags=["x<y"], title='"T"', note="n&n",
    )  # fmt: skip
    page = history(saved_site)
    assert line(page, run_id).locator("td").all_inner_texts()[3:] == [
        '"T" n&n', "a <i>text", "top_k 4", "end token", "1,234", "24.0", "\N{MINUS SIGN}1.500", "1.250", "x<y", "edit",
    ]  # fmt: skip
    assert line(page, run_id).locator("[data-star]").get_attribute("aria-pressed") == "true"
    line(page, run_id).locator(".dl-why").click()
    page.wait_for_url(re.compile(f"run={run_id}"))
    expect(page.locator("#dl-prompt textarea")).to_have_value("<b>&")


def test_the_search_and_its_words_are_in_the_address(saved_site: Site, saved: Saved) -> None:
    first = saved.run("The capital of France is", " Paris")
    second = saved.run("Paris, capital", " city")
    page = history(saved_site)
    expect_runs(page, [second, first])
    page.fill("input[name=q]", "paris")
    page.wait_for_url(re.compile("q=paris"))
    expect_runs(page, [second, first])
    page.fill("input[name=q]", '"capital of fr*"')
    expect_runs(page, [first])
    page.reload()
    expect_runs(page, [first])
    expect(page.locator("input[name=q]")).to_have_value('"capital of fr*"')
    page.fill("input[name=q]", "apital")
    expect(page.locator(".dl-place")).to_contain_text("not the inside of a word")
    page.fill("input[name=q]", "%")
    expect(page.locator(".dl-notice")).to_contain_text("There is no word in '%'")
    page.fill("input[name=q]", "")
    expect_runs(page, [second, first])
    expect(page.locator(".dl-notice")).to_be_empty()


def test_filters_are_chips_that_can_be_taken_away(saved_site: Site, saved: Saved) -> None:
    cold = saved.run(settings=Settings(seed=1, temperature=0.2), reason=StopReason.MAX_TOKENS)
    hot = saved.run(settings=Settings(seed=1, temperature=1.5), reason=StopReason.MAX_TOKENS, tags=["good"])
    other = saved.run(settings=Settings(seed=1, temperature=1.5))
    page = history(saved_site)
    page.click("[data-filters]")
    page.select_option("select[name=stop]", "max_tokens")
    expect_runs(page, [hot, cold])
    page.fill("input[name=tmin]", "1")
    page.press("input[name=tmin]", "Enter")
    expect_runs(page, [hot])
    assert [c.split("×")[0].strip() for c in page.locator(".dl-chips [data-drop]").all_inner_texts()] == [
        "stop: max_tokens", "temperature ≥ 1",
    ]  # fmt: skip
    page.click(".dl-chips [data-drop=stop]")
    expect_runs(page, [other, hot])
    page.click(".dl-tag")
    expect_runs(page, [hot])
    assert "tag=good" in page.url
    page.go_back()
    expect_runs(page, [other, hot])
    page.click("[data-drop=tmin]")
    expect_runs(page, [other, hot, cold])


@pytest.mark.parametrize("query", ["?stop=nonsense&tmin=hot&since=never&sort=age&nmin=-1", "?q=&order=up&nmax=1e9"])
def test_any_address_opens(saved_site: Site, saved: Saved, query: str) -> None:
    run_id = saved.run()
    assert shown(history(saved_site, query)) == [run_id]


def test_a_head_sorts_and_pages_go_on_in_its_order(saved_site: Site, saved: Saved) -> None:
    numbers = [7, 3, 7, 1, 9]
    ids = [saved.run(num_tokens=n, mean_logprob=-n if n > 1 else None) for n in numbers]
    page = history(saved_site)
    page.click("[data-sort=tokens]")
    expect_runs(page, [ids[4], ids[2], ids[0], ids[1], ids[3]])
    page.click("[data-sort=tokens]")
    expect_runs(page, [ids[3], ids[1], ids[0], ids[2], ids[4]])
    assert page.get_attribute("th[aria-sort] button", "data-sort") == "tokens"
    page.click("[data-sort=logprob]")
    expect_runs(page, [ids[1], ids[2], ids[0], ids[4], ids[3]])
    page.reload()
    expect_runs(page, [ids[1], ids[2], ids[0], ids[4], ids[3]])


def test_older_runs_come_under_the_others_and_nothing_comes_twice(saved_site: Site, saved: Saved) -> None:
    ids = [saved.run(num_tokens=i // 10) for i in range(120)]
    page = history(saved_site, "?sort=tokens")
    assert len(shown(page)) == 50
    page.click("[data-more]")
    page.wait_for_selector("[data-run] >> nth=99")
    page.click("[data-more]")
    expect_runs(page, ids[::-1])
    expect(page.locator("[data-more]")).to_be_hidden()


def test_star_tag_title_and_note_are_saved_and_shown(saved_site: Site, saved: Saved) -> None:
    first, second = saved.run("one"), saved.run("two")
    page = history(saved_site)
    line(page, first).locator("[data-star]").click()
    expect(line(page, first).locator("[data-star]")).to_have_attribute("aria-pressed", "true")
    assert saved.row(first).is_starred  # type: ignore[union-attr]
    line(page, first).hover()
    line(page, first).locator("[data-edit]").click()
    page.fill(".dl-editing [name=title]", " <u>Named</u> ")
    page.fill(".dl-editing [name=note]", "why")
    page.fill(".dl-editing [name=tags]", "a, b c,a")
    page.press(".dl-editing [name=tags]", "Enter")
    expect(line(page, first).locator(".dl-start")).to_have_text("<u>Named</u> why")
    row = saved.row(first)
    assert row is not None
    assert (row.title, row.note, row.tags) == ("<u>Named</u>", "why", ["a", "b c"])
    page.click("[data-all]")
    page.fill(".dl-tagging input", "both")
    page.click(".dl-tagging button")
    expect(line(page, second).locator(".dl-tag")).to_have_text("both")
    assert [saved.row(i).tags for i in (first, second)] == [["a", "b c", "both"], ["both"]]  # type: ignore[union-attr]
    page.fill(".dl-tagging input", "no, comma")
    page.click(".dl-tagging button")
    expect(page.locator(".dl-notice")).to_contain_text("'no, comma' is none")


def test_a_comparison_is_one_line_that_unfolds(saved_site: Site, saved: Saved) -> None:
    experiment_id, arms = saved.comparison("three arms", 3)
    alone = saved.run("alone")
    page = history(saved_site)
    assert shown(page) == [alone]
    whole = page.locator("[data-comparison]")
    expect(whole).to_contain_text("comparison of 3 arms")
    whole.locator("[data-unfold]").click()
    expect_runs(page, [alone, *arms])
    assert page.locator(".dl-of .dl-armlink").all_inner_texts() == ["A", "B", "C"]
    whole.locator("[data-unfold]").click()
    expect_runs(page, [alone])
    whole.focus()
    page.keyboard.press("e")
    page.fill(".dl-editing [name=title]", "My arms")
    page.keyboard.press("Enter")
    expect(page.locator("[data-comparison] b")).to_have_text("My arms")
    with saved.database.read() as session:
        assert session.get_one(Experiment, experiment_id).title == "My arms"
    page.click("[data-comparison] .dl-why")
    page.wait_for_url(re.compile(f"experiment={experiment_id}"))


def test_several_are_compared_or_deleted_and_the_deletion_is_undone(saved_site: Site, saved: Saved) -> None:
    experiment_id, arms = saved.comparison("arms", 2)
    first, second, third = (saved.run(f"run {i}") for i in range(3))
    page = history(saved_site)
    for run_id in (first, second):
        line(page, run_id).locator(".dl-pick").click()
    assert page.inner_text(".dl-chosen") == "2 selected"
    href = page.get_attribute("[data-compare]", "href")
    assert href is not None
    assert set(re.findall("from=([^&]+)", href)) == {first, second}
    page.click("[data-comparison] .dl-pick")
    page.click("[data-do=delete]")
    expect_runs(page, [third])
    expect(page.locator(".dl-undo")).to_contain_text("4 runs deleted.")
    assert saved.ids() == {third}
    line(page, third).locator(".dl-pick").click()
    page.fill(".dl-tagging input", "meanwhile")
    page.press(".dl-tagging input", "Enter")
    expect(line(page, third).locator(".dl-tag")).to_have_text("meanwhile")
    page.click(".dl-undo button")
    expect_runs(page, [third, second, first])
    expect(page.locator("[data-comparison]")).to_have_count(1)
    assert saved.ids() == {first, second, third, *arms}
    with saved.database.read() as session:
        assert session.get_one(Experiment, experiment_id).deleted_at is None


def test_back_brings_the_search_back_into_the_box(saved_site: Site, saved: Saved) -> None:
    first, second = saved.run("foo", tags=["good"]), saved.run("bar", tags=["good"])
    page = history(saved_site)
    page.fill("input[name=q]", "foo")
    expect_runs(page, [first])
    page.click(".dl-tag")
    page.wait_for_url(re.compile("tag=good"))
    page.fill("input[name=q]", "bar")
    expect_runs(page, [second])
    page.focus("input[name=q]")
    page.go_back()
    expect_runs(page, [first])
    expect(page.locator("input[name=q]")).to_have_value("foo")


def test_a_run_that_goes_on_is_not_deleted(saved_site: Site, saved: Saved) -> None:
    run_id = saved.run()
    with saved.database.write() as session:
        session.execute(update(Run).values(status="running", stop_reason=None))
    page = history(saved_site)
    line(page, run_id).locator(".dl-pick").click()
    page.click("[data-do=delete]")
    expect(page.locator(".dl-undo")).to_contain_text("1 run not ended yet and kept")
    assert saved.ids() == {run_id}


def test_the_keyboard_alone_suffices(saved_site: Site, saved: Saved) -> None:
    _, arms = saved.comparison("arms", 2)
    older, newer = saved.run("older"), saved.run("newer")
    page = history(saved_site)
    line(page, newer).focus()
    page.keyboard.press("ArrowDown")
    expect(line(page, older)).to_be_focused()
    page.keyboard.press("x")
    expect(page.locator(".dl-chosen")).to_have_text("1 selected")
    expect(line(page, older).locator(".dl-pick input")).to_be_checked()
    page.keyboard.press("s")
    expect(line(page, older).locator("[data-star]")).to_have_attribute("aria-pressed", "true")
    expect(line(page, older)).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect_runs(page, [newer, older, *arms])
    page.keyboard.press("ArrowLeft")
    expect_runs(page, [newer, older])
    page.keyboard.press("/")
    expect(page.locator("input[name=q]")).to_be_focused()
    line(page, older).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"run={older}"))
    assert saved.row(older).is_starred  # type: ignore[union-attr]


@pytest.mark.parametrize("width", [1400, 480])
def test_the_page_never_scrolls_sideways(saved_site: Site, saved: Saved, width: int) -> None:
    saved.comparison("long " * 60, 2)
    run_id = saved.run("word" * 80, " said" * 100, tags=["a rather long tag here", "and one more"], note="n" * 900)
    page = history(saved_site, "?q=&sort=", viewport={"width": width, "height": 800})
    page.click("[data-filters]")
    line(page, run_id).locator(".dl-pick input").click()
    page.click("[data-unfold]")
    page.wait_for_selector(".dl-of")
    line(page, run_id).focus()
    page.keyboard.press("e")
    page.wait_for_selector(".dl-editing")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_nothing_saved_says_where_runs_come_from(saved_site: Site) -> None:
    expect(history(saved_site).locator(".dl-place")).to_contain_text("Nothing is saved yet.")
