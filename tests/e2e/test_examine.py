"""The folds that look back at a run, in a browser: their numbers are those of the examiner and the records."""

import math
import re

from playwright.sync_api import Page, expect

from models.errors import LimitError, UnavailableError
from tests.e2e.conftest import Site, run, run_in_address, wait_for_end
from tests.fakes.app import FakeStack, no_worker
from tests.fakes.services import wait_until

FOLD = '[data-fold="{}"]'


def ended(site: Site, stack: FakeStack, **fields: str) -> tuple[Page, str]:
    """A page whose run has ended, and the run's id."""
    stack.token_s = 0.002
    page = site.open()
    for field, value in fields.items():
        page.fill(f"#dl-c-{field}", value)
    run(page)
    wait_for_end(page)
    return page, run_in_address(page)


def open_fold(page: Page, name: str) -> str:
    fold = FOLD.format(name)
    page.click(f"{fold} > summary")
    return fold


def answered(page: Page, fold: str) -> None:
    page.wait_for_selector(f"{fold}[open]:not([data-busy]) .dl-fold-place > *")


def words(page: Page, fold: str) -> str:
    return " ".join(page.inner_text(f"{fold} .dl-fold-place").split())


def test_the_folds_come_with_the_end_and_ask_nothing_before_they_are_opened(site: Site, stack: FakeStack) -> None:
    stack.token_s = 0.05
    page = site.open()
    run(page)
    expect(page.locator(FOLD.format("influence"))).to_be_hidden()
    wait_for_end(page)
    expect(page.locator("#dl-folds details:visible")).to_have_count(4)
    assert stack.examiner.num_asked == 0


def test_influence_is_computed_when_it_is_opened(site: Site, stack: FakeStack) -> None:
    page, run_id = ended(site, stack, top_p="0.9", min_p="0.01")
    fold = open_fold(page, "influence")
    answered(page, fold)
    number = len(stack.run(run_id).tokens)
    row = page.locator(f'{fold} tr[data-control="top_p"]')
    expect(row).to_have_attribute("data-changed", str(-(-number // 3)))
    assert f"top_p 0.9 acted on {-(-number // 3)} of {number} tokens" in " ".join(row.inner_text().split())
    assert "never acted" in page.inner_text(f'{fold} tr[data-control="min_p"]')
    assert stack.examiner.num_asked == 1
    open_fold(page, "influence")
    open_fold(page, "influence")
    assert stack.examiner.num_asked == 1  # what is known is not asked for again


def test_the_next_run_has_its_own_influence(site: Site, stack: FakeStack) -> None:
    page, _ = ended(site, stack, top_p="0.9")
    fold = open_fold(page, "influence")
    answered(page, fold)
    page.fill("#dl-c-top_k", "7")
    page.click("#dl-run")
    page.wait_for_selector(f'{fold} tr[data-control="top_k"]')
    assert stack.examiner.num_asked == 2


def test_the_cache_is_checked_at_the_press_of_a_button(site: Site, stack: FakeStack) -> None:
    page, run_id = ended(site, stack)
    fold = open_fold(page, "check")
    assert stack.examiner.num_asked == 0
    page.click(f"{fold} [data-ask]")
    page.wait_for_selector(f'{fold} [data-verdict="same"]')
    number = len(stack.run(run_id).tokens)
    assert f"3.8e-06 nats, at token 2 ({number} of {number} tokens" in words(page, fold)
    page.click(f"{fold} [data-goto='2']")
    page.wait_for_selector("#dl-inspector [data-position='2']")
    expect(page.locator("#dl-strip [data-i='2']")).to_have_attribute("aria-current", "true")


def test_what_if_opens_with_the_runs_own_settings(site: Site, stack: FakeStack) -> None:
    page, run_id = ended(site, stack, temperature="0.8")
    fold = open_fold(page, "what-if")
    answered(page, fold)
    assert stack.examiner.asked == [stack.run(run_id).settings]
    assert page.input_value("#dl-w-temperature") == "0.8"
    assert "has the same tokens" in words(page, fold)
    number = len(stack.run(run_id).tokens)
    expect(page.locator(f"{fold} .dl-text [data-i]")).to_have_count(number)
    assert page.get_attribute(f"{fold} [data-score]", "href") == f"./score?run={run_id}"


def test_a_moved_control_shows_where_a_fresh_run_leaves(site: Site, stack: FakeStack) -> None:
    page, run_id = ended(site, stack, temperature="0.8")
    fold = open_fold(page, "what-if")
    answered(page, fold)
    page.fill("#dl-w-temperature", "1.6")
    page.wait_for_selector(f"{fold} .dl-diverges")
    answered(page, fold)
    assert page.get_attribute(f"{fold} .dl-diverges", "data-i") == "4"
    assert "A fresh run leaves it at token 4" in words(page, fold)
    assert stack.examiner.asked[-1] == stack.run(run_id).settings.with_changes(temperature=1.6)
    assert "was 0.8" in page.inner_text(f'{fold} [data-field="temperature"]')
    # The shade of each token is that of its new probability.
    shades = page.eval_on_selector_all(f"{fold} .dl-text [data-i]", "spans => spans.map(s => Number(s.dataset.shade))")
    edges = (0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0.01)
    expected = [sum(math.exp(round(t.raw_logprob / 1.6, 4)) < edge for edge in edges) for t in stack.run(run_id).tokens]
    assert shades == expected
    page.click(f"{fold} [data-restore]")
    expect(page.locator(f"{fold} .dl-diverges")).to_have_count(0)
    assert page.input_value("#dl-w-temperature") == "0.8"


def test_a_slider_moves_the_field_beside_it(site: Site, stack: FakeStack) -> None:
    page, _ = ended(site, stack)
    fold = open_fold(page, "what-if")
    answered(page, fold)
    slider = page.locator(f'{fold} [data-field="min_p"] [data-slider]')
    slider.evaluate("node => { node.value = '0.6'; node.dispatchEvent(new Event('input', { bubbles: true })); }")
    assert page.input_value("#dl-w-min_p") == "0.6"
    expect(page.locator(f"{fold} .dl-fold-place")).to_contain_text("impossible now")
    assert stack.examiner.asked[-1].min_p == 0.6


def test_a_value_that_cannot_be_is_told_beside_the_controls(site: Site, stack: FakeStack) -> None:
    page, _ = ended(site, stack)
    fold = open_fold(page, "what-if")
    answered(page, fold)
    page.fill("#dl-w-top_p", "1.5")
    expect(page.locator(f"{fold} .dl-fold-place")).to_contain_text("top_p")
    expect(page.locator("#dl-w-top_p")).to_have_attribute("aria-invalid", "true")
    assert len(stack.examiner.asked) == 1


def test_a_replay_is_a_new_run_with_the_same_settings_and_its_verdict(site: Site, stack: FakeStack) -> None:
    page, run_id = ended(site, stack, temperature="0.8", seed="77")
    fold = open_fold(page, "replay")
    page.click(f"{fold} [data-ask]")
    page.wait_for_selector(f'{fold} [data-verdict="same"]')
    saved, fresh = stack.run(run_id), stack.run(list(stack.runs)[-1])
    assert fresh.id != saved.id
    assert (fresh.prompt, fresh.settings) == (saved.prompt, saved.settings)
    assert f"The same {len(saved.tokens)} tokens." in words(page, fold)
    assert page.get_attribute(f"{fold} .dl-verdict a", "href") == f"./?run={fresh.id}"
    assert run_in_address(page) == run_id  # the page stays where it is


def test_a_replay_that_differs_is_told_with_both_numbers(site: Site, stack: FakeStack) -> None:
    page, run_id = ended(site, stack)
    stack.text = stack.text.replace("city", "town", 1)
    fold = open_fold(page, "replay")
    page.click(f"{fold} [data-ask]")
    page.wait_for_selector(f'{fold} [data-verdict="differs"]')
    position = next(t.position for t in stack.run(run_id).tokens if "city" in t.piece)
    assert f"They differ from token {position} on" in words(page, fold)
    assert len(re.findall(r"raw [0-9.]+ %", words(page, fold))) == 2


def test_an_error_stands_in_its_fold_and_can_be_tried_again(site: Site, stack: FakeStack) -> None:
    page, _ = ended(site, stack)
    stack.examiner.failure = LimitError("The worker looks back at 1 other runs already; try again.")
    fold = open_fold(page, "check")
    page.click(f"{fold} [data-ask]")
    expect(page.locator(f"{fold} .dl-fold-place")).to_contain_text("already; try again")
    expect(page.locator(".dl-alert-on")).to_have_count(0)
    stack.examiner.failure = UnavailableError("The worker that looked back at this run was lost; try again.")
    page.click(f"{fold} [data-ask]")
    expect(page.locator(f"{fold} .dl-fold-place")).to_contain_text("was lost")
    stack.examiner.failure = None
    page.click(f"{fold} [data-ask]")
    page.wait_for_selector(f'{fold} [data-verdict="same"]')


def test_without_a_worker_the_replay_says_so(site: Site, stack: FakeStack) -> None:
    page, _ = ended(site, stack)
    stack.failures["submit"] = no_worker()
    fold = open_fold(page, "replay")
    page.click(f"{fold} [data-ask]")
    for _ in range(2):  # the same answer again is an answer too
        expect(page.locator(f"{fold} .dl-fold-place")).to_contain_text("No worker is alive")
        expect(page.locator(f"{fold} [data-ask]")).to_be_enabled()
        page.click(f"{fold} [data-ask]")
    expect(page.locator(f"{fold} [data-ask]")).to_be_enabled()


def test_a_question_is_dropped_when_its_page_is_left(site: Site, stack: FakeStack) -> None:
    page, _ = ended(site, stack)
    stack.examiner.answer_s = 600
    fold = open_fold(page, "check")
    page.click(f"{fold} [data-ask]")
    wait_until(lambda: stack.examiner.num_open == 1, what="the question")
    page.wait_for_timeout(2500)  # Gradio does not miss a page that leaves before it listens for its answer
    page.context.close()
    wait_until(lambda: stack.examiner.num_open == 0, what="the end of the question")


def test_hostile_pieces_are_text_in_every_fold(site: Site, stack: FakeStack) -> None:
    stack.text = " <img src=x onerror=alert(1)> Paris. The <b>city</b> is known."
    page, _ = ended(site, stack)
    fold = open_fold(page, "what-if")
    answered(page, fold)
    page.fill("#dl-w-temperature", "2")
    page.wait_for_selector(f"{fold} .dl-diverges")
    assert page.locator(f"{fold} img, {fold} .dl-text b").count() == 0
