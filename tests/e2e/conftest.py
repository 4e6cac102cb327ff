"""A real Chromium and the real pages, over scripted parts or over the whole stack in its own processes."""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.conftest import missing
from tests.e2e.saved_site import Saved, serving
from tests.e2e.server import ServerThread
from tests.fakes.app import FakeStack, application
from tests.fakes.services import PATIENCE_S

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
PATIENCE_MS = 1000 * PATIENCE_S
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
# Gradio's own client reports requests that a reload cuts off; these are about our components and our policy.
OUR_FAULTS = ("Content Security Policy", "js_on_load", "watch callback", "template")


# Playwright keeps an event loop running in the thread while it is open, so it must not outlive this folder's tests.
@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        missing(f"there is no Chromium at {CHROMIUM}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Watched:
    """What a page did that no page may do."""

    faults: list[str] = field(default_factory=list)

    def attach(self, page: Page, origin: str) -> None:
        page.on("pageerror", lambda error: self.faults.append(f"page error: {error}"))
        page.on("console", lambda message: self._console(message.type, message.text))
        page.on("request", lambda request: self._request(request.url, origin))

    def _console(self, kind: str, text: str) -> None:
        if kind == "error" and any(sign in text for sign in OUR_FAULTS):
            self.faults.append(f"console: {text}")

    def _request(self, url: str, origin: str) -> None:
        if not url.startswith((origin, "data:", "blob:")):
            self.faults.append(f"a request to {url}")


@dataclass
class Site:
    """A served application and a way to open its pages; closing checks what the pages did."""

    url: str
    browser: Browser
    watched: Watched = field(default_factory=Watched)
    contexts: list[BrowserContext] = field(default_factory=list)

    def open(self, path: str = "/", **context_options: Any) -> Page:
        """A new tab of a new person at `path`, ready to be used."""
        options: dict[str, Any] = {"viewport": {"width": 1400, "height": 900}, **context_options}
        context = self.browser.new_context(**options)
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        self.watched.attach(page, self.url)
        page.goto(self.url + path)
        page.wait_for_selector("#dl-nav")
        page.wait_for_selector(".dl-status:not(:text-is('…'))")
        return page

    def close(self) -> None:
        for context in self.contexts:
            context.close()
        assert self.watched.faults == []


@pytest.fixture(scope="package")
def _fake_server() -> Iterator[tuple[ServerThread, FakeStack]]:
    stack = FakeStack()
    server = ServerThread(application(stack))
    server.start()
    yield server, stack
    server.stop()


@pytest.fixture
def stack(_fake_server: tuple[ServerThread, FakeStack]) -> FakeStack:
    """The scripted parts behind `site`, as new."""
    stack = _fake_server[1]
    stack.__init__()  # type: ignore[misc]
    return stack


@pytest.fixture
def site(_fake_server: tuple[ServerThread, FakeStack], stack: FakeStack, chromium: Browser) -> Iterator[Site]:
    """The pages over scripted parts."""
    site = Site(_fake_server[0].url, chromium)
    yield site
    site.close()


@pytest.fixture(scope="package")
def _saved_server(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saved]:
    path = tmp_path_factory.mktemp("saved") / "saved.sqlite3"
    shutil.copy(migrated_sqlite, path)
    with serving(path) as saved:
        yield saved


@pytest.fixture
def saved(_saved_server: Saved) -> Saved:
    """The database behind `saved_site`, empty."""
    _saved_server.clear()
    return _saved_server


@pytest.fixture
def saved_site(saved: Saved, chromium: Browser) -> Iterator[Site]:
    """The pages over a real history."""
    site = Site(saved.url, chromium)
    yield site
    site.close()


def strip_text(page: Page, selector: str = "#dl-strip .dl-text") -> str:
    """The run's text as the page shows it: without chips and without what was cut."""
    return page.eval_on_selector(
        selector,
        """area => [...area.childNodes]
          .flatMap(node => node.className === 'dl-block' ? [...node.childNodes] : [node])
          .filter(node => !node.classList || !node.classList.contains('dl-chip'))
          .map(node => node.querySelector?.('s') ? node.firstChild.textContent : node.textContent).join('')""",
    )


def run_in_address(page: Page) -> str:
    """The run's id in the address bar, once it is there."""
    page.wait_for_url(re.compile(r"\?run="))
    return parse_qs(urlsplit(page.url).query)["run"][0]


def run(page: Page) -> None:
    """Press Run and return when three tokens are on the page."""
    page.click("#dl-run")
    page.wait_for_selector("#dl-strip [data-i='2']")


def wait_for_end(page: Page) -> None:
    page.wait_for_selector("#dl-facts .dl-ending")
