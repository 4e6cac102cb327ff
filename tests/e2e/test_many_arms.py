"""Sweeps, seeds, baselines and diffs in a real browser; what the page says is what the runs have."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from app.compare import figures, first_divergence
from app.render.panel import arm_name
from models.sampling import Settings
from tests.e2e.conftest import Site, strip_text
from tests.fakes.app import FakeStack
from tests.fakes.scripted_runs import TEXT

pytestmark = pytest.mark.browser

WORDS = TEXT.split(" ")


def sweep(page: Page, *values: str) -> None:
    """Sweep temperature, then top_p, over these values."""
    page.click(".dl-panel-head [data-add-sweep]")
    page.locator("[data-sweep-values]").nth(0).fill(values[0])
    if len(values) > 1:
        page.click(".dl-sweep [data-add-sweep]")
        page.locator("[data-sweep-values]").nth(1).fill(values[1])


def wait_for_all(page: Page, number: int) -> None:
    expect(page.locator(".dl-progress [role=status]")).to_contain_text(f"{number} of {number} runs ended")
    expect(page.locator("#dl-run")).to_be_enabled()


def row(page: Page, arm: str) -> Locator:
    return page.locator(f'#dl-outcome tr[data-arm="{arm}"]')


def values(cells: Locator) -> list[float]:
    return [float(text) for text in cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")]


def tell_lengths(stack: FakeStack, *lengths: list[int]) -> None:
    """Each arm's seeds say so many words of the text."""
    for arm, numbers in enumerate(lengths):
        for sample, number in enumerate(numbers):
            stack.texts[arm, sample] = " ".join(WORDS[:number])


def test_a_sweep_over_two_controls_is_a_grid_whose_cells_open(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    tell_lengths(stack, *[[10 + 3 * arm] for arm in range(6)])
    page = site.open("/compare")
    sweep(page, "0.2..0.6 step 0.2", "0.5, 0.9")
    page.click("#dl-run")
    wait_for_all(page, 6)
    arms = [(run.settings.temperature, run.settings.top_p) for run in stack.runs.values()]
    assert arms == [(0.2, 0.5), (0.2, 0.9), (0.4, 0.5), (0.4, 0.9), (0.6, 0.5), (0.6, 0.9)]
    assert len({run.settings.seed for run in stack.runs.values()}) == 1
    assert page.locator(".dl-cross thead th").all_inner_texts() == ["top_p 0.5", "top_p 0.9"]
    assert page.locator(".dl-cross tbody th").all_inner_texts() == [f"temperature {t}" for t in ("0.2", "0.4", "0.6")]
    details = [stack.run(run_id) for run_id in stack.runs]
    cells = page.locator(".dl-cell")
    assert values(cells) == [len(detail.tokens) for detail in details]
    shades = [int(s) for s in cells.evaluate_all("cells => cells.map(cell => cell.dataset.shade)")]
    assert (shades[0], shades[-1]) == (0, 7)
    assert shades == sorted(shades)
    page.select_option("[data-shade-by]", "mean_logprob")
    assert values(cells) == pytest.approx([figures(detail.tokens).mean_logprob for detail in details])
    expect(page.locator(".dl-column b")).to_have_text(["A", "B"])
    cells.nth(4).click()
    expect(page.locator(".dl-column b")).to_have_text(["A", "B", "E"])
    assert strip_text(page, ".dl-column:nth-child(3) .dl-text") == details[4].text
    cells.nth(1).click()
    expect(page.locator(".dl-column b")).to_have_text(["A", "E"])
    for cell in (2, 3, 5):
        cells.nth(cell).click()
    expect(page.locator(".dl-column b")).to_have_text(["A", "C", "D", "F"])


def test_a_sweep_is_reopened_by_its_link_as_it_was(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    page = site.open("/compare")
    sweep(page, "0, 0.5..1 step 0.5, 1.5, 2")
    page.click("#dl-run")
    wait_for_all(page, 5)
    assert page.locator(".dl-cells .dl-cell .dl-label").all_inner_texts()[:2] == ["temperature 0", "temperature 0.5"]
    page.reload()
    wait_for_all(page, 5)
    expect(page.locator("[data-sweep-values]").nth(0)).to_have_value("0, 0.5, 1, 1.5, 2")
    expect(page.locator("[data-sweep]").nth(1)).to_be_hidden()
    expect(page.locator("tr[data-field=temperature] [data-input]")).to_be_disabled()
    page.click("#dl-run")
    expect(page.locator(".dl-progress [role=status]")).to_contain_text("5 runs")
    page.wait_for_url(re.compile("experiment-(?!1$)"))
    assert len(stack.runs) == 10


@pytest.mark.parametrize(
    ("sweeps", "words"),
    [
        (("0.2..1.0",), "sweep of temperature: '0.2..1.0' needs a step"),
        (("0.2, hot",), "Sweep, temperature hot: temperature: 'hot' is not a number"),
        (("0.1..0.9 step 0.1", "0.1..0.9 step 0.1"), "9 times 9 values are 81 arms; a comparison has at most 64"),
    ],
)
def test_a_wrong_sweep_is_refused_and_stays(site: Site, stack: FakeStack, sweeps: tuple[str, ...], words: str) -> None:
    page = site.open("/compare")
    sweep(page, *sweeps)
    page.click("#dl-run")
    expect(page.locator("[role=alert]")).to_contain_text(words)
    expect(page.locator("[data-sweep-values]").nth(0)).to_have_value(sweeps[0])
    assert stack.runs == {}


def test_one_arm_is_stopped_and_the_others_go_on(site: Site, stack: FakeStack) -> None:
    stack.token_s = 0.5
    page = site.open("/compare")
    page.click("#dl-run")
    page.wait_for_selector(".dl-column:nth-child(2) [data-i='1']")
    expect(page.locator(".dl-progress [role=status]")).to_have_text("0 of 2 runs ended, 2 running")
    page.click("button[aria-label='stop arm B']")
    page.wait_for_selector(".dl-column:nth-child(2)[data-state=ended]")
    expect(row(page, "B")).to_contain_text("stopped")
    expect(page.locator(".dl-progress [role=status]")).to_have_text("1 of 2 runs ended, 1 running")
    expect(page.locator("button[aria-label='stop arm B']")).to_be_hidden()
    num_tokens = page.locator(".dl-column:nth-child(1) [data-i]").count()
    page.wait_for_selector(f".dl-column:nth-child(1) [data-i='{num_tokens}']")
    page.click("#dl-stop")
    expect(row(page, "A")).to_contain_text("stopped")
    assert [run.cancelled_at is None for run in stack.runs.values()] == [False, False]


def test_another_baseline_while_the_arms_run_and_after(site: Site, stack: FakeStack) -> None:
    stack.token_s = 0.1
    page = site.open("/compare")
    page.click("[data-add-arm]")
    page.fill("#dl-c-max_tokens", "24")
    page.click("#dl-run")
    page.wait_for_selector(".dl-column:nth-child(3) [data-i='9']")
    page.select_option("[data-baseline]", "2")
    expect(page.locator("#dl-outcome")).to_contain_text("leaves C. Token 8")
    page.wait_for_url(re.compile("baseline=2"))
    expect(page.locator(".dl-column[data-state=ended]")).to_have_count(3)
    expect(page.locator("#dl-run")).to_be_enabled()
    expect(page.locator("#dl-outcome th").nth(2)).to_have_text("leaves C")
    page.select_option("[data-baseline]", "1")
    expect(page.locator("#dl-outcome")).to_contain_text("C leaves B. Token 8")
    page.wait_for_url(re.compile("baseline=1"))
    page.reload()
    expect(page.locator("#dl-outcome")).to_contain_text("leaves B. Token 8")
    expect(page.locator("[data-baseline]")).to_have_value("1")


def test_the_diff_shows_what_each_arm_has_in_place_of_the_baseline(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    page = site.open("/compare")
    page.click("#dl-run")
    expect(page.locator(".dl-column[data-state=ended]")).to_have_count(2)
    page.click("[data-diff]")
    other = page.locator(".dl-column:nth-child(2)")
    expect(other.locator(".dl-ins")).to_have_text([" gardens"])
    assert other.locator(".dl-del").all_text_contents() == [" art"]
    assert page.locator(".dl-column:nth-child(1) .dl-ins, .dl-column:nth-child(1) .dl-del").count() == 0
    page.click("[data-diff]")
    expect(other.locator(".dl-ins, .dl-del")).to_have_count(0)
    assert strip_text(page, ".dl-column:nth-child(2) .dl-text") == TEXT.replace("art", "gardens", 1)


def test_both_ledgers_open_at_the_divergence(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    page = site.open("/compare")
    sweep(page, "0.1..0.6 step 0.1")
    page.click("#dl-run")
    wait_for_all(page, 6)
    expect(page.locator("#dl-inspectors h3")).to_have_count(2)  # those of the first divergence, by itself
    row(page, "F").locator("[data-ledgers]").click()
    expect(page.locator("#dl-inspectors h3 .dl-arm")).to_have_text(["A", "F"])
    base, arm = (list(stack.runs)[i] for i in (0, 5))
    found = first_divergence(stack.run(base).tokens, stack.run(arm).tokens)
    assert found is not None
    assert page.locator("#dl-inspectors [data-position]").first.get_attribute("data-position") == str(found.position)
    expect(page.locator("#dl-inspectors .dl-divergence")).to_contain_text(f"Token {found.position}: raw:")
    expect(page.locator(".dl-column b")).to_have_text(["A", "B", "F"])


def test_several_seeds_have_intervals_an_a_a_pair_and_a_verdict(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    tell_lengths(stack, [20, 24, 28, 32], [21, 23, 29, 31], [22, 22, 30, 30])
    page = site.open("/compare")
    page.fill("[data-seeds]", "4")
    page.click("#dl-run")
    wait_for_all(page, 12)
    seeds = [run.settings.seed for run in stack.runs.values()]
    assert seeds[0:4] == seeds[4:8]
    assert not set(seeds[0:4]) & set(seeds[8:12])
    lengths = [[len(stack.run(run_id).tokens) for run_id in list(stack.runs)[4 * i : 4 * i + 4]] for i in range(3)]
    for name, numbers in zip(("A", "B", "A/A"), lengths, strict=True):
        assert values(row(page, name).locator("[data-value]"))[0] == sum(numbers) / 4
    expect(page.locator(".dl-verdicts li")).to_contain_text(
        [
            "B and A are not distinguishable at n = 4: tokens",
            "A/A pair, A against itself with other noise: not distinguishable at n = 4",
        ]
    )
    assert page.locator(".dl-column").count() == 2
    drawn = page.locator("[data-chart=tokens] [data-value]")
    assert values(drawn) == [sum(numbers) / 4 for numbers in lengths]
    expect(page.locator("[data-chart=tokens] th")).to_have_text(["A", "B", "A/A"])
    page.reload()
    wait_for_all(page, 12)
    expect(page.locator("[data-seeds]")).to_have_value("4")
    expect(page.locator(".dl-verdicts li")).to_have_count(2)


def test_noise_of_ones_own(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    page = site.open("/compare")
    expect(page.get_by_label("shared noise")).to_be_checked()
    expect(page.locator(".dl-noise p")).to_contain_text("all arms draw with the same random numbers")
    page.uncheck("[data-shared]")
    expect(page.locator(".dl-noise p")).to_contain_text("Own noise: every arm draws for itself")
    page.click("#dl-run")
    expect(page.locator(".dl-column[data-state=ended]")).to_have_count(2)
    assert len({run.settings.seed for run in stack.runs.values()}) == 2
    page.reload()
    expect(page.get_by_label("shared noise")).not_to_be_checked()


def test_sixty_four_arms_end_and_the_page_stays_within_480_px(site: Site, stack: FakeStack) -> None:
    stack.token_s, stack.queue_s = 0.02, 0
    experiment_id, _ = stack.submit_comparison("x", [Settings(seed=5, top_k=k) for k in range(64)])
    page = site.open(f"/compare?experiment={experiment_id}", viewport={"width": 480, "height": 900})
    wait_for_all(page, 64)
    names = [arm_name(i) for i in range(64)]
    expect(page.locator(".dl-cell b")).to_have_text(names)
    expect(page.locator("#dl-outcome tbody th")).to_have_text(names)
    assert page.evaluate("document.documentElement.scrollWidth") <= 480
    expect(page.locator("[data-sweep-values]").nth(0)).to_have_value(", ".join(map(str, range(64))))


def test_arms_start_from_saved_runs_and_presets(site: Site, stack: FakeStack) -> None:
    stack.token_s = stack.queue_s = 0
    first = stack.submit("Once", Settings(seed=11, temperature=0.3, max_tokens=9))
    second = stack.submit("Once", Settings(seed=12, top_k=4))
    page = site.open(f"/compare?from={first}&from={second}")
    expect(page.locator("#dl-prompt textarea")).to_have_value("Once")
    expect(page.locator("#dl-c-seed")).to_have_value("11")
    page.select_option("[data-add-preset]", "greedy")
    expect(page.locator("tr[data-field=temperature] [data-input]").nth(2)).to_have_value("0")
    page.click("#dl-run")
    wait_for_all_columns(page, 3)
    arms = [run.settings for run in list(stack.runs.values())[2:]]
    shared = {"seed": 11, "max_tokens": 9}
    assert arms == [Settings(temperature=0.3, **shared), Settings(top_k=4, **shared), Settings(temperature=0, **shared)]
    page.goto(f"{site.url}/compare?from={first}&from=gone")
    expect(page.locator("[role=alert]")).to_contain_text("There is no run gone")


def wait_for_all_columns(page: Page, number: int) -> None:
    expect(page.locator(".dl-column[data-state=ended]")).to_have_count(number)
    expect(page.locator("#dl-run")).to_be_enabled()
