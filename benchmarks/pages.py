"""How the pages keep up, in a real Chromium over real processes: `python -m benchmarks.pages [columns viewers stop]`.

Only the network is scripted, so that tokens come quicker than a small machine could compute them. A token's delay is
the time from its arrival at a plain subscriber of its stream to the frame in which a person could see it.
"""

import argparse
import asyncio
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from playwright.sync_api import Browser, Page, sync_playwright

from app.follow import Follower
from app.history import History
from benchmarks.measure import Bound, Measure, at_most
from models.db.session import Database
from models.events import TokenPicked
from tests.e2e.conftest import ARGUMENTS, CHROMIUM
from tests.fakes.real_stack import RealStack
from tests.fakes.services import Valkey, migrate
from tests.fakes.worker import SENTENCE, Plan

NUM_COLUMNS: Final = 4
NUM_TOKENS: Final = 4000
RATE: Final = 200  # tokens a second in each column
NUM_VIEWERS: Final = 20
NUM_WATCHED: Final = 2000  # tokens: the run goes on until all viewers are there
NUM_STOPPED: Final = 8
PATIENCE_MS: Final = 180_000
# When each token of each strip could first be seen: the frame after it came into the page, in milliseconds since 1970.
OBSERVER: Final = """
window.dlShown = {};
const note = (span, at) => {
  const column = span.closest('.dl-column');
  const name = column ? [...column.parentNode.children].indexOf(column) : 0;
  const shown = (window.dlShown[name] ||= []);
  shown[Number(span.dataset.i)] ??= at;
};
new MutationObserver((changes) => {
  const added = changes.flatMap((change) => [...change.addedNodes]).filter((node) => node.querySelectorAll);
  requestAnimationFrame(() => {
    const at = performance.timeOrigin + performance.now();
    for (const node of added) {
      if (node.matches('.dl-text [data-i]')) note(node, at);
      for (const span of node.querySelectorAll('.dl-text [data-i]')) note(span, at);
    }
  });
}).observe(document, { childList: true, subtree: true });
"""


@dataclass
class Told:
    """What a plain subscriber of one run saw."""

    arrived_ms: dict[int, float] = field(default_factory=dict)  # by position
    num_bytes: int = 0  # of the tokens' texts and candidates, as JSON


class Subscriber:
    """Follows runs in a thread of its own until all have ended."""

    def __init__(self, real: RealStack, run_ids: list[str]) -> None:
        self.told = {run_id: Told() for run_id in run_ids}
        self._follower = Follower(Database(real.database_url), real.valkey.url)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._follow()))
        self._thread.start()

    def wait(self) -> list[Told]:
        self._thread.join()
        return list(self.told.values())

    async def _follow(self) -> None:
        await asyncio.gather(*(self._follow_one(run_id, told) for run_id, told in self.told.items()))

    async def _follow_one(self, run_id: str, told: Told) -> None:
        async for event in self._follower.follow(run_id):
            if isinstance(event.payload, TokenPicked):
                token = event.payload
                told.arrived_ms[token.position] = 1000 * time.time()
                told.num_bytes += len(msgspec.json.encode(token.text)) + len(msgspec.json.encode(token.candidates))


def main() -> None:
    parts: dict[str, Callable[[Browser], list[Measure]]] = {"columns": columns, "viewers": viewers, "stop": stop}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], default=[])
    chosen = parser.parse_args().parts or list(parts)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        for name in chosen:
            for measure in parts[name](browser):
                print(measure, flush=True)
        browser.close()


def columns(browser: Browser) -> list[Measure]:
    """Four arms of 4,000 tokens side by side."""
    with served(rows=NUM_COLUMNS, step_s=1 / RATE / NUM_COLUMNS / 4) as real:
        page = opened(browser, f"{real.url}/compare")
        for _ in range(NUM_COLUMNS - 2):
            page.click("[data-add-arm]")
        received = count_bytes(page)
        told = subscribe(real, submit(page, NUM_TOKENS))
        page.wait_for_selector(f".dl-column[data-state=ended] >> nth={NUM_COLUMNS - 1}")
        heard = told.wait()
        shown = page.evaluate("window.dlShown")
    lates = [late for number, one in enumerate(heard) for late in delays_ms(one, shown[str(number)])]
    lasts = [shown[str(number)][NUM_TOKENS - 1] - one.arrived_ms[NUM_TOKENS - 1] for number, one in enumerate(heard)]
    rates = [
        (NUM_TOKENS - 1) / (one.arrived_ms[NUM_TOKENS - 1] - one.arrived_ms[0]) * 1000 for one in heard
    ]  # fmt: skip
    title = f"{NUM_COLUMNS} columns of {NUM_TOKENS:,} tokens"
    return [
        Measure.of(f"{title}: tokens a second in each", rates, unit="tokens/s"),
        *percentiles(f"{title}: shown after received", lates),
        Measure.of(f"{title}: the last one shown after received", lasts, unit="ms", bound=at_most(1000)),
        Measure.of(
            f"{title}: bytes sent against texts and candidates",
            [sum(received) / sum(one.num_bytes for one in heard)],
            bound=at_most(3),
            detail=f"{sum(received) / NUM_COLUMNS / NUM_TOKENS:.0f} bytes a token",
        ),
    ]


def viewers(browser: Browser) -> list[Measure]:
    """Twenty people who watch one run."""
    with served(rows=1, step_s=0.05) as real:
        first = opened(browser, real.url)
        address = submit(first, NUM_WATCHED)
        told = subscribe(real, address)
        pages = [first] + [opened(browser, address) for _ in range(NUM_VIEWERS - 1)]
        for page in pages:
            page.wait_for_selector("#dl-facts .dl-ending")
        (heard,) = told.wait()
        num_shown = [len(page.evaluate("window.dlShown")["0"]) for page in pages]
        lasts = [page.evaluate("window.dlShown")["0"][-1] - heard.arrived_ms[NUM_WATCHED - 1] for page in pages]
    assert num_shown == [NUM_WATCHED] * NUM_VIEWERS
    return [Measure.of(f"{NUM_VIEWERS} viewers: the last token shown after received", lasts, unit="ms")]


def stop(browser: Browser) -> list[Measure]:
    """Stop of all while eight arms stream: from the click until the page says that all have ended."""
    waits_ms: list[float] = []
    with served(rows=NUM_STOPPED, step_s=0.002) as real:
        for _ in range(3):
            page = opened(browser, f"{real.url}/compare")
            for _ in range(NUM_STOPPED - 2):
                page.click("[data-add-arm]")
            submit(page, NUM_TOKENS)
            page.wait_for_selector(".dl-column:nth-child(2) [data-i='40']")
            begun = time.perf_counter()
            page.click("#dl-stop")
            words = f"{NUM_STOPPED} of {NUM_STOPPED} runs ended"
            page.wait_for_function(
                "words => document.querySelector('.dl-progress [role=status]').textContent.includes(words)", arg=words
            )
            waits_ms.append(1000 * (time.perf_counter() - begun))
            page.context.close()
    title = f"Stop while {NUM_STOPPED} arms stream, until all have ended on the page"
    return [Measure.of(title, waits_ms, unit="ms", bound=at_most(1000))]


@contextmanager
def served(*, rows: int, step_s: float) -> Iterator[RealStack]:
    """Everything on a folder of its own, killed at the end."""
    with tempfile.TemporaryDirectory(prefix="decodelab-pages-") as name:
        folder = Path(name)
        (folder / "valkey").mkdir()
        url = f"sqlite:///{folder / 'decodelab.sqlite3'}"
        migrate(url)
        plan = Plan(text=SENTENCE * 250, step_s=step_s)
        real = RealStack(folder, url, Valkey(folder / "valkey"), plan, rows=rows)
        try:
            real.start()
            yield real
        finally:
            real.kill()


def opened(browser: Browser, url: str) -> Page:
    """A new person's page, ready to be used."""
    page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.add_init_script(OBSERVER)
    page.goto(url)
    page.wait_for_selector(".dl-status:not(:text-is('…'))")
    return page


def submit(page: Page, num_tokens: int) -> str:
    """Press Run; the address of what runs then."""
    page.fill("#dl-prompt textarea", "the quick brown fox")
    page.fill("#dl-c-max_tokens", str(num_tokens))
    page.click("#dl-run")
    page.wait_for_url("**/*?*=*")
    return page.url


def subscribe(real: RealStack, address: str) -> Subscriber:
    """A subscriber of the run or of the comparison that an address opens."""
    name, _, value = address.rpartition("?")[2].partition("&")[0].partition("=")
    if name == "run":
        return Subscriber(real, [value])
    database = Database(real.database_url)
    try:
        return Subscriber(real, [arm.id for arm in History(database).experiment(value).arms])
    finally:
        database.close()


def count_bytes(page: Page) -> list[int]:
    """Bytes of every answer from now on."""
    received: list[int] = []
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.dataReceived", lambda event: received.append(event["dataLength"]))
    return received


def delays_ms(told: Told, shown_ms: list[float]) -> list[float]:
    """From the subscriber to the frame; what came before the subscriber had begun is left out."""
    return [shown_ms[position] - arrived for position, arrived in told.arrived_ms.items() if position >= 100]


def percentiles(title: str, values: list[float], bound: Bound | None = None) -> list[Measure]:
    twentieths = statistics.quantiles(values, n=20)
    return [
        Measure.of(f"{title}, p50", [twentieths[9]], unit="ms", bound=bound),
        Measure.of(f"{title}, p95", [twentieths[18]], unit="ms", bound=bound),
    ]


if __name__ == "__main__":
    main()
