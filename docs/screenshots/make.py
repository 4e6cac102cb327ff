"""Make the pictures of every page from a running stack: `python docs/screenshots/make.py [URL]` after `make up`.

Every picture is of the real pages over a real checkpoint, in light and dark, at 1400 and at 480 pixels. The stack's
runs are in them, so a fresh data folder makes the clearest ones.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).parent
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WIDTHS = {"wide": 1400, "narrow": 480}
SCHEMES = ("light", "dark")
PROMPT = "The capital of France is"
TOKEN = 8  # the one that the inspector shows
TIMEOUT_MS = 120_000


@dataclass(frozen=True)
class Picture:
    """A page with something on it: `prepare` brings it into the state that is shown."""

    link: str
    prepare: Callable[[Page], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:7860")
    url = parser.parse_args().url.rstrip("/")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for name, picture in pictures(browser, url).items():
            for scheme in SCHEMES:
                for width in WIDTHS:
                    take(browser, picture, scheme, WIDTHS[width], HERE / f"{name}-{scheme}-{width}.png")
        browser.close()


def pictures(browser: Browser, url: str) -> dict[str, Picture]:
    """Make one run, one comparison, one sweep and one score; returns what is to be seen of each."""
    page = opened(browser, url, "light", WIDTHS["wide"])
    playground = Picture(run(page), inspect)
    page.goto(f"{url}/compare")
    comparison = Picture(compare(page), diverge)
    page.goto(f"{url}/compare")
    grid = Picture(sweep(page), swept)
    page.goto(f"{url}/score")
    scored = Picture(score(page), impossible)
    page.context.close()
    return {
        "playground": playground,
        "compare": comparison,
        "sweep": grid,
        "history": Picture(f"{url}/history", listed),
        "score": scored,
        "status": Picture(f"{url}/status", working),
    }


def run(page: Page) -> str:
    fill(page, temperature="0.8", top_p="0.9", seed="42", max_tokens="96")
    page.click("#dl-run")
    page.wait_for_selector("#dl-facts .dl-ending")
    return page.url


def compare(page: Page) -> str:
    page.click("[data-add-arm]")
    for arm, temperature in enumerate(("0.2", "0.7", "1.2")):
        page.fill(f"tr[data-field=temperature] td[data-arm='{arm}'] input", temperature)
    fill(page, seed="42", max_tokens="48")
    page.click("#dl-run")
    page.wait_for_selector(".dl-column[data-state=ended] >> nth=2")
    return page.url


def sweep(page: Page) -> str:
    for number, values in enumerate(("0.4, 0.8, 1.2", "0.7, 0.9, 1")):  # of the temperature, then of top_p
        page.locator("[data-add-sweep]:visible").click()
        page.locator("[data-sweep-values]").nth(number).fill(values)
    fill(page, seed="42", max_tokens="24")
    page.click("#dl-run")
    page.wait_for_url("**/*experiment=*")
    swept(page)
    return page.url


def score(page: Page) -> str:
    page.fill("#dl-given textarea", " Paris. It is the largest city in France, and it smells of bread.")
    fill(page, top_p="0.9")
    page.click("#dl-run")
    page.wait_for_selector("#dl-figures .dl-score-figures")
    return page.url


def fill(page: Page, **settings: str) -> None:
    page.fill("#dl-prompt textarea", PROMPT)
    for name, value in settings.items():
        page.fill(f"#dl-c-{name}", value)


def inspect(page: Page) -> None:
    page.wait_for_selector("#dl-facts .dl-ending")
    page.click(f"#dl-strip [data-i='{TOKEN}']")
    page.wait_for_selector(f"#dl-inspector [data-position='{TOKEN}']")


def diverge(page: Page) -> None:
    page.wait_for_selector(".dl-column[data-state=ended] >> nth=2")
    diverging = page.get_attribute(".dl-diverges >> nth=0", "data-i") or "0"
    page.click(f".dl-column:nth-child(1) [data-i='{diverging}']")
    page.wait_for_selector(f"#dl-inspectors [data-position='{diverging}'] >> nth=2")


def swept(page: Page) -> None:
    page.wait_for_function("document.querySelector('.dl-progress [role=status]')?.textContent.includes('9 of 9')")


def impossible(page: Page) -> None:
    page.wait_for_selector("#dl-figures .dl-score-figures")
    page.wait_for_selector("#dl-coverage .dl-coverage")


def listed(page: Page) -> None:
    page.wait_for_selector("[data-run]")
    for fold in page.query_selector_all("[data-unfold]"):
        fold.click()
    page.wait_for_selector(".dl-of >> nth=8")


def working(page: Page) -> None:
    page.wait_for_selector("#dl-overview [data-worker]")


def take(browser: Browser, picture: Picture, scheme: str, width: int, path: Path) -> None:
    page = opened(browser, picture.link, scheme, width)
    picture.prepare(page)
    page.mouse.move(0, 0)
    page.wait_for_timeout(400)
    page.screenshot(path=path, full_page=True)
    page.context.close()


def opened(browser: Browser, link: str, scheme: str, width: int) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(link)
    page.wait_for_selector(".dl-status:not(:text-is('…'))")
    return page


if __name__ == "__main__":
    main()
