"""How quick the history is over 100,000 runs: `python -m benchmarks.history [--runs N] [--kind sqlite|postgresql]`.

Fills a new database, then asks for lists, filters, sorts and searches as the page does, each many times, and prints the
median and the 95th percentile of each. Words are drawn as in real text: few are everywhere, most are rare. With
`--folder` the databases stay there, and the next call asks them again.
"""

import argparse
import contextlib
import itertools
import os
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import func, insert, select, text

from app.history import Bounds, History, RunFilter, Sort, SortKey
from models.db.experiments import Experiment
from models.db.runs import Run
from models.db.session import Database
from models.events import Status, StopReason
from models.sampling import Settings
from tests.fakes.services import migrate, running_postgres

GOAL_MS: Final = 100
_ROWS_AT_ONCE: Final = 1000
_REPEATS: Final = 20
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_WORDS: Final = [f"w{i}" for i in range(20_000)]
_SUMS: Final = list(itertools.accumulate(1 / (i + 1) for i in range(len(_WORDS))))  # Zipf
_SETTINGS: Final = [
    Settings(temperature=i / 10, top_p=1 - i % 4 / 20, top_k=i % 3 * 20, max_tokens=64 << i % 5, seed=1)
    for i in range(21)
]
_REASONS: Final = ([StopReason.EOS] * 60) + ([StopReason.MAX_TOKENS] * 36) + ([StopReason.CANCELLED] * 3) + [
    StopReason.ERROR_NUMERICAL
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that a page asks for."""

    name: str
    ask: Callable[[History], Any]


def fill(database: Database, num_runs: int) -> None:
    """Save runs by the thousand: a fifth are arms of comparisons, some have no figures, stars and tags are rare."""
    draw = random.Random(7)
    for start in range(0, num_runs, _ROWS_AT_ONCE):
        numbers = range(start, min(start + _ROWS_AT_ONCE, num_runs))
        experiment = _experiment(start)
        rows = [_row(draw, number, experiment["id"] if number % 5 == 0 else None) for number in numbers]
        with database.write() as session:
            session.execute(insert(Experiment), [experiment])
            session.execute(insert(Run), rows)


def questions(num_runs: int) -> Iterator[Question]:
    """Lists, filters, sorts and searches, the easy ones and the hard ones."""
    yield Question("list: newest, comparisons in one line", lambda h: h.page(RunFilter(), is_grouped=True))
    middle = str(_id(_START + timedelta(seconds=num_runs // 2)))
    yield Question("list: a page in the middle", lambda h: h.page(RunFilter(), before=middle))
    filters: dict[str, RunFilter] = {
        "checkpoint": RunFilter(checkpoint="rare"),
        "stop, common": RunFilter(stop_reason=StopReason.EOS),
        "stop, rare": RunFilter(stop_reason=StopReason.ERROR_NUMERICAL),
        "stop, none": RunFilter(stop_reason=StopReason.WORKER_LOST),
        "status": RunFilter(status=Status.CANCELLED),
        "starred": RunFilter(is_starred=True),
        "tag": RunFilter(tag="good one"),
        "tag, none": RunFilter(tag="nowhere"),
        "temperature": RunFilter(min_temperature=0.69, max_temperature=0.71),
        "temperature, none": RunFilter(min_temperature=5),
        "tokens": RunFilter(min_tokens=500),
        "an early day": RunFilter(until=_START + timedelta(hours=2)),
        "starred and stop": RunFilter(is_starred=True, stop_reason=StopReason.ERROR_NUMERICAL),
        "top_p": RunFilter(settings={"top_p": Bounds(0.95, 0.95)}),
        "settings, none": RunFilter(settings={"top_k": Bounds(20, 40), "min_p": Bounds(0.1)}),
        "seed": RunFilter(seed=num_runs // 3),
    }
    for name, filters_ in filters.items():
        yield Question(f"filter: {name}", lambda h, f=filters_: h.page(f))  # type: ignore[misc]
    places: dict[Sort, str | None] = {}
    for key in SortKey:
        for is_ascending in (False, True):
            sort = Sort(key, is_ascending)
            name = f"{key} {'up' if is_ascending else 'down'}"
            yield Question(f"sort: {name}", lambda h, s=sort: h.page(RunFilter(), sort=s))  # type: ignore[misc]
            yield Question(f"sort: {name}, page 3", lambda h, s=sort: _third_page(h, s, places))  # type: ignore[misc]
    by_tokens = Sort(SortKey.TOKENS)
    sorted_too = {"stop": "stop, rare", "starred": "starred", "stop, common": "stop, common", "none": "settings, none"}
    for name, f in ((name, filters[of]) for name, of in sorted_too.items()):
        yield Question(f"sort and filter: tokens, {name}", lambda h, f=f: h.page(f, sort=by_tokens))  # type: ignore[misc]
    searches = {
        "everywhere": "w0", "common": "w20", "rare": "w9000", "nowhere": "xyzzy", "two words": "w3 w50",
        "phrase": '"w0 w1"', "beginning": "w90*", "common beginning": "w1*", "rare phrase": '"w80 w200"',
    }  # fmt: skip
    for name, typed in searches.items():
        yield Question(f"search: {name}", lambda h, t=typed: h.page(RunFilter(text=t)))  # type: ignore[misc]
    found = RunFilter(text="w20", stop_reason=StopReason.EOS)
    yield Question("search and filter", lambda h: h.page(found))
    yield Question("search and sort", lambda h: h.page(RunFilter(text="w20"), sort=by_tokens))
    yield Question("search everywhere and sort", lambda h: h.page(RunFilter(text="w0"), sort=by_tokens))
    everywhere = RunFilter(text="w0", stop_reason=StopReason.EOS)
    yield Question("search everywhere, filter and sort", lambda h: h.page(everywhere, sort=by_tokens))


def measure(history: History, question: Question, repeats: int, clock: Callable[[], float]) -> list[float]:
    """Milliseconds of each repeat, sorted; the first, which warms caches, is left out."""
    times = []
    for _ in range(repeats + 1):
        start = clock()
        question.ask(history)
        times.append((clock() - start) * 1000)
    return sorted(times[1:])


def percentile(times: list[float], share: float) -> float:
    """The nearest rank of sorted values."""
    return times[min(len(times) - 1, max(0, -(-int(share * 100) * len(times) // 100) - 1))]


def run(kind: str, url: str, asked: argparse.Namespace) -> None:
    start = time.perf_counter()
    migrate(url)
    migrated = time.perf_counter()
    database = Database(url)
    with database.read() as session:
        is_filled = session.scalar(select(func.count()).select_from(Run)) == asked.runs
    if not is_filled:
        fill(database, asked.runs)
    if not database.is_sqlite:
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))  # what it does by itself within a minute; SQLite does nothing
    filled = "kept" if is_filled else f"saved in {time.perf_counter() - migrated:.0f} s"
    print(
        f"\n{kind}: migrated in {migrated - start:.0f} s, {asked.runs:,} runs {filled}; load {os.getloadavg()[0]:.1f}"
    )
    clock = _work_clock(database) if asked.cpu else time.perf_counter
    every: list[float] = []
    for question in questions(asked.runs):
        if asked.only not in question.name:
            continue
        times = measure(History(database), question, asked.repeats, clock)
        every += times
        p95 = percentile(times, 0.95)
        late = "  over" if p95 > GOAL_MS else ""
        print(f"  {question.name:40} p50 {percentile(times, 0.5):7.1f} ms   p95 {p95:7.1f} ms{late}", flush=True)
    every.sort()
    print(f"  {'all together':40} p50 {percentile(every, 0.5):7.1f} ms   p95 {percentile(every, 0.95):7.1f} ms")
    database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=_REPEATS)
    parser.add_argument("--kind", choices=["sqlite", "postgresql"], action="append")
    parser.add_argument("--cpu", action="store_true", help="the time that is worked, here and in PostgreSQL's process")
    parser.add_argument("--folder", type=Path, help="where the databases stay, filled once; else they are thrown away")
    parser.add_argument("--only", default="", help="only the questions with this in their name")
    asked = parser.parse_args()
    kinds = asked.kind or ["sqlite", "postgresql"]
    with tempfile.TemporaryDirectory(prefix="decodelab-history-") as name, contextlib.ExitStack() as stack:
        folder = Path(asked.folder or name).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)  # PostgreSQL runs as another user
        if "sqlite" in kinds:
            run("SQLite", f"sqlite:///{folder / 'runs.sqlite3'}", asked)
        if "postgresql" in kinds:
            is_new = not (folder / "postgres").exists()
            (folder / "postgres").mkdir(mode=0o755, exist_ok=True)
            postgres = stack.enter_context(running_postgres(folder / "postgres"))
            run("PostgreSQL", postgres.create_database("runs") if is_new else postgres.url("runs"), asked)


def _work_clock(database: Database) -> Callable[[], float]:
    """Seconds that a processor worked for a question, which a busy machine does not stretch; not the waiting.

    PostgreSQL answers from one process then: what it spreads over several would not be seen.
    """
    if database.is_sqlite:
        return time.process_time
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f'ALTER DATABASE "{database.url.database}" SET max_parallel_workers_per_gather = 0'))
    database.engine.dispose()
    with database.read() as session:
        answering = Path(f"/proc/{session.scalar(text('SELECT pg_backend_pid()'))}/schedstat")
    return lambda: time.process_time() + int(answering.read_text().split()[0]) / 1e9


def _third_page(history: History, sort: Sort, places: dict[Sort, str | None]) -> None:
    """The third page alone: where it begins is found once."""
    if sort not in places:
        first = history.page(RunFilter(), sort=sort)
        places[sort] = history.page(RunFilter(), sort=sort, before=first.next).next
    history.page(RunFilter(), sort=sort, before=places[sort])


def _id(moment: datetime) -> uuid.UUID:
    """A UUIDv7 of this moment."""
    return uuid.UUID(int=int(moment.timestamp() * 1000) << 80 | 7 << 76 | 2 << 62 | random.getrandbits(62))


def _experiment(number: int) -> dict[str, Any]:
    moment = _START + timedelta(seconds=number)
    return {
        "id": str(_id(moment)), "created_at": moment, "checkpoint": "common", "prompt": "of a comparison",
        "num_arms": 8, "baseline_index": 0,
    }  # fmt: skip


def _row(draw: random.Random, number: int, experiment_id: str | None) -> dict[str, Any]:
    moment = _START + timedelta(seconds=number)
    reason = draw.choice(_REASONS)
    settings = draw.choice(_SETTINGS)
    num_tokens = min(2000, int(draw.expovariate(1 / 120)))
    has_figures = draw.random() < 0.95
    return {
        "id": str(_id(moment)), "created_at": moment, "enqueued_at": moment, "ended_at": moment,
        "kind": "generate", "checkpoint": "rare" if draw.random() < 0.02 else "common", "status": reason.status.value,
        "prompt": " ".join(draw.choices(_WORDS, cum_weights=_SUMS, k=12)), "settings": settings.as_dict(),
        "seed": str(number),
        "temperature": settings.temperature, "stop_reason": reason.value, "stop": {"reason": reason.value},
        "text": " ".join(draw.choices(_WORDS, cum_weights=_SUMS, k=80)), "num_tokens": num_tokens,
        "mean_logprob": round(-draw.expovariate(1), 6) if has_figures else None,
        "mean_entropy": round(draw.expovariate(1), 6) if has_figures else None,
        "tokens_per_s": round(draw.gauss(24, 1), 1) if has_figures else None,
        "milestones": [{"type": "started", "prompt_token_ids": [draw.randrange(50_000) for _ in range(60)]}],
        "ended_published": True, "is_starred": draw.random() < 0.02, "tags": ["good one"] if number % 97 == 0 else [],
        "experiment_id": experiment_id, "arm_index": None if experiment_id is None else number % 8,
    }  # fmt: skip


if __name__ == "__main__":
    main()
