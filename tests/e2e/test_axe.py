"""An audit of every page by axe-core, with content on it, in light and dark, wide and narrow: nothing serious."""

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from models.sampling import Settings
from tests.e2e.conftest import Site, run, wait_for_end
from tests.fakes.app import FakeStack

GRAVE = ("serious", "critical")


def ran(page: Page, stack: FakeStack) -> None:
    """A run that has ended, its inspector and every fold open."""
    run(page)
    wait_for_end(page)
    page.click("#dl-strip [data-i='1']")
    page.wait_for_selector("#dl-inspector [data-position='1']")
    unfold(page)


def compared(page: Page, stack: FakeStack) -> None:
    page.click("#dl-run")
    page.wait_for_selector(".dl-column:nth-child(2)[data-state=ended]")
    page.wait_for_selector(".dl-column:nth-child(1)[data-state=ended]")
    unfold(page)


def listed(page: Page, stack: FakeStack) -> None:
    run(page)
    wait_for_end(page)
    page.goto(page.url.partition("?")[0].rstrip("/") + "/history")
    page.wait_for_selector("#dl-table [data-run]")


def watched(page: Page, stack: FakeStack) -> None:
    page.wait_for_selector("#dl-overview [data-worker]")


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")


def scored(page: Page, stack: FakeStack) -> None:
    run_id = stack.submit("The capital of France", Settings(seed=1), given_text=" is Paris.")
    page.goto(f"{page.url}?run={run_id}")
    page.wait_for_selector("#dl-figures .dl-score-figures")
    unfold(page)


PAGES: dict[str, tuple[str, Callable[[Page, FakeStack], None]]] = {
    "playground": ("/", ran),
    "compare": ("/compare", compared),
    "history": ("/", listed),
    "score": ("/score", scored),
    "status": ("/status", watched),
}


def grave(page: Page) -> list[str]:
    """What axe finds, a line each: rule, impact, places."""
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [
        f"{v['id']} ({v['impact']}): {v['help']}: {', '.join(str(node['target']) for node in v['nodes'][:4])}"
        for v in found
        if v["impact"] in GRAVE
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_no_serious_finding(name: str, scheme: str, site: Site, stack: FakeStack) -> None:
    path, fill = PAGES[name]
    stack.token_s = 0.005
    page = site.open(path, color_scheme=scheme)
    fill(page, stack)
    assert grave(page) == []


@pytest.mark.parametrize("name", PAGES)
def test_no_serious_finding_where_it_is_narrow(name: str, site: Site, stack: FakeStack) -> None:
    path, fill = PAGES[name]
    stack.token_s = 0.005
    page = site.open(path, viewport={"width": 480, "height": 900})
    fill(page, stack)
    assert grave(page) == []
