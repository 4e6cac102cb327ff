"""Make the README's screenshots from a running stack: `python docs/screenshots/make.py [URL]` after `make up`.

Every picture is of the real pages over a real checkpoint: playground with the inspector open, compare, history, in
light and dark.
"""

import argparse
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).parent
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PROMPT = "The capital of France is"
TOKEN = 8  # the one that the inspector shows
TIMEOUT_MS = 120_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:7860")
    url = parser.parse_args().url.rstrip("/")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        links = run_all(browser, url)
        for scheme in ("light", "dark"):
            for name, link in links.items():
                picture(browser, scheme, name, link)
        browser.close()


def run_all(browser: Browser, url: str) -> dict[str, str]:
    """Make one run and one comparison; returns the link of each page."""
    page = opened(browser, "light", url)
    page.fill("#dl-prompt textarea", PROMPT)
    page.fill("#dl-c-temperature", "0.8")
    page.fill("#dl-c-top_p", "0.9")
    page.fill("#dl-c-seed", "42")
    page.fill("#dl-c-max_tokens", "96")
    page.click("#dl-run")
    page.wait_for_selector("#dl-facts .dl-ending")
    links = {"playground": page.url}
    page.goto(f"{url}/compare")
    page.wait_for_selector("#dl-arms [data-add-arm]")
    page.click("[data-add-arm]")
    for arm, temperature in enumerate(("0.2", "0.7", "1.2")):
        page.fill(f"tr[data-field=temperature] td[data-arm='{arm}'] input", temperature)
    page.fill("#dl-prompt textarea", PROMPT)
    page.fill("#dl-c-seed", "42")
    page.fill("#dl-c-max_tokens", "48")
    page.click("#dl-run")
    page.wait_for_selector(".dl-column[data-state=ended] >> nth=2")
    links["compare"] = page.url
    links["history"] = f"{url}/history"
    page.context.close()
    return links


def picture(browser: Browser, scheme: str, name: str, link: str) -> None:
    page = opened(browser, scheme, link)
    if name == "playground":
        page.wait_for_selector("#dl-facts .dl-ending")
        page.click(f"#dl-strip [data-i='{TOKEN}']")
        page.wait_for_selector(f"#dl-inspector [data-position='{TOKEN}']")
    elif name == "compare":
        page.wait_for_selector(".dl-column[data-state=ended] >> nth=2")
        diverging = page.get_attribute(".dl-diverges >> nth=0", "data-i") or "0"
        page.click(f".dl-column:nth-child(1) [data-i='{diverging}']")
        page.wait_for_selector(f"#dl-inspectors [data-position='{diverging}'] >> nth=2")
    else:
        page.wait_for_selector("[data-run]")
    page.mouse.move(0, 0)
    page.wait_for_timeout(400)
    page.screenshot(path=HERE / f"{name}-{scheme}.png", full_page=name != "history")
    page.context.close()


def opened(browser: Browser, scheme: str, link: str) -> Page:
    context = browser.new_context(
        viewport={"width": 1400, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(link)
    page.wait_for_selector("#dl-nav")
    page.wait_for_timeout(1000)
    return page


if __name__ == "__main__":
    main()
