"""From a token's pick to its arrival at a subscriber, through the publisher and Redis, with 8 runs at once.

    python -m benchmarks delivery

The worker is `benchmarks.worker`; the followers are those of the page, in this process. Every other round measures
`benchmarks.bare` beside the same 8 runs: what Redis alone takes on this machine while a network uses its cores.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.embedded import START_TIMEOUT_S, STOP_TIMEOUT_S, TWIN, Running
from benchmarks.machine import Bench
from benchmarks.measure import Measure, at_most
from benchmarks.stack import PROMPT
from models.errors import UnavailableError
from models.events import TokenPicked
from models.sampling import Settings

NUM_STREAMS = 8
FIRST_POSITION = 16
"""Earlier tokens may have waited for their follower to begin."""
BARE_S = 3.0  # a part of the time that a round of 64 tokens takes
BOUNDS = {"p50": at_most(2), "p95": at_most(10)}


def delivery(bench: Bench, running: Running) -> list[Measure]:
    """Milliseconds; a value is the percentile of one round of 8 runs."""
    notes = running.settings.data / "began"
    environment = {**running.environment, "DECODELAB_SERVE": TWIN, "DECODELAB_REDIS_URL": running.settings.redis_url}
    with (running.settings.data / "twin.log").open("wb") as log:
        command = [sys.executable, "-m", "benchmarks.worker", str(notes)]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    found: dict[str, list[float]] = {name: [] for name in BOUNDS}
    bare: dict[str, list[float]] = {name: [] for name in BOUNDS}
    try:
        wait_for_worker(process, running)
        asyncio.run(one_round(running, notes, bench.amounts.tokens))  # warms the worker up
        for _ in range(bench.amounts.rounds):
            add(found, asyncio.run(one_round(running, notes, bench.amounts.tokens)))
            add(bare, asyncio.run(bare_round(running, notes, bench.amounts.tokens)))
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
    title = f"{NUM_STREAMS} streams"
    return [
        *(
            Measure.of(f"picked to received, {title}, {name}", found[name], unit="ms", bound=bound)
            for name, bound in BOUNDS.items()
        ),
        *(Measure.of(f"bare XADD to XREAD beside {title}, {name}", bare[name], unit="ms") for name in BOUNDS),
    ]


def add(found: dict[str, list[float]], waits_ms: list[float]) -> None:
    """Add the percentiles of one round."""
    twentieths = statistics.quantiles(waits_ms, n=20)
    found["p50"].append(twentieths[9])
    found["p95"].append(twentieths[18])


def wait_for_worker(process: "subprocess.Popen[bytes]", running: Running) -> None:
    """Return when the second worker serves."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while all(info.name != TWIN for info in running.stack.serving.checkpoints()):
        if process.poll() is not None or time.monotonic() > deadline:
            log = (running.settings.data / "twin.log").read_text(encoding="utf-8")
            raise UnavailableError(f"The second worker did not start: {log[-2000:]}")
        time.sleep(0.1)


async def one_round(running: Running, notes: Path, num_tokens: int) -> list[float]:
    """Milliseconds of every token of 8 runs, followed side by side."""
    settings = [Settings(max_tokens=num_tokens, ignore_eos=True, seed=seed) for seed in range(NUM_STREAMS)]
    run_ids = [running.stack.submitter.submit(PROMPT, one, checkpoint=TWIN) for one in settings]
    followed = await asyncio.gather(*(arrivals(running, run_id) for run_id in run_ids))
    lines = (line.rpartition(" ") for line in notes.read_text(encoding="utf-8").splitlines())
    began_s = {sequence_id: float(seconds) for sequence_id, _, seconds in lines}
    return [
        1000 * (arrived_s - began_s[sequence_id]) - elapsed_ms
        for tokens in followed
        for sequence_id, arrived_s, elapsed_ms in tokens
    ]


async def bare_round(running: Running, notes: Path, num_tokens: int) -> list[float]:
    """Milliseconds of every entry of `benchmarks.bare` while 8 runs are followed."""
    command = [sys.executable, "-m", "benchmarks.bare", running.settings.redis_url, str(BARE_S)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.gather(process.communicate(), one_round(running, notes, num_tokens))
    waits_ms: list[float] = json.loads(output[0])
    return waits_ms


async def arrivals(running: Running, run_id: str) -> list[tuple[str, float, float]]:
    """Sequence id, arrival on the shared clock and `elapsed_ms` of each token."""
    found = []
    async for event in running.stack.follower.follow(run_id):
        arrived_s = time.perf_counter()
        if isinstance(event.payload, TokenPicked) and event.payload.position >= FIRST_POSITION:
            found.append((f"{event.run_id}/{event.attempt}", arrived_s, event.payload.elapsed_ms))
    return found
