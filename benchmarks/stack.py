"""What the whole stack adds to the network: queue to first token, and time per token, with the embedded stack running.

    python -m benchmarks.stack [--rounds 8] [--tokens 64]

Interleaved in one run: a few bare cached decode passes in this process, then one run through submit, queue, worker,
database and stream, followed to its end. While one side works the other is idle, so both have the machine to
themselves and meet the same noise. Both use the same number of threads and of cached positions.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from app.settings import AppSettings
from app.stack import Stack, open_stack
from benchmarks.overhead import TARGET, bare_pass
from models.environment import DEFAULT_CHECKPOINTS
from models.errors import UnavailableError
from models.events import Ended, TokenPicked
from models.sampling import Settings
from workers.engine.catalog import Catalog, prepare
from workers.engine.checkpoint import load_checkpoint

PROMPT = "The capital of France is"
FIRST_TOKEN_TARGET_MS = 400.0
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 15.0


@dataclass
class Measured:
    """Milliseconds, one number a round, except `bare_ms`, one a pass."""

    bare_ms: list[float] = field(default_factory=list)
    token_ms: list[float] = field(default_factory=list)  # the run's own inter-token median
    received_ms: list[float] = field(default_factory=list)  # the same as its reader saw it
    first_token_ms: list[float] = field(default_factory=list)  # submit to received, less the prefill


def main() -> None:
    options = read_options()
    entry = Catalog.parse(DEFAULT_CHECKPOINTS, options.data).entry()
    prepare(entry)
    checkpoint = load_checkpoint(entry, device="cpu", dtype="float32")
    prompt_ids = checkpoint.encode(PROMPT)
    measured = Measured()
    with embedded_stack(options.data) as stack:
        for number in range(options.rounds + 1):
            one = measured if number else Measured()  # the first round warms both sides up
            measure_bare(one, bare_pass(checkpoint, prompt_ids), options.tokens)
            asyncio.run(measure_run(one, stack, options.tokens))
    report(measured, options)


def measure_bare(measured: Measured, bare: Callable[[], None], num_passes: int) -> None:
    for _ in range(num_passes):
        began_s = time.perf_counter()
        bare()
        measured.bare_ms.append((time.perf_counter() - began_s) * 1000)


async def measure_run(measured: Measured, stack: Stack, num_tokens: int) -> None:
    """One run of `num_tokens` with neutral settings and 20 candidates, from submit to its end."""
    settings = Settings(max_tokens=num_tokens, ignore_eos=True, seed=1)
    began_s = time.perf_counter()
    run_id = stack.submitter.submit(PROMPT, settings)
    arrivals_s: list[float] = []
    async for event in stack.follower.follow(run_id):
        if isinstance(event.payload, TokenPicked):
            arrivals_s.append(time.perf_counter())
        elif isinstance(event.payload, Ended):
            timing = event.payload.timing
            if timing.itl_ms is None or timing.prefill_ms is None:
                raise SystemExit(f"the run ended too early: {event.payload.stop}")
            measured.token_ms.append(timing.itl_ms["p50"])
            measured.first_token_ms.append((arrivals_s[0] - began_s) * 1000 - timing.prefill_ms)
    measured.received_ms.append(1000 * (arrivals_s[-1] - arrivals_s[0]) / (len(arrivals_s) - 1))


@contextlib.contextmanager
def embedded_stack(data: Path) -> Iterator[Stack]:
    """`decodelab up` on an empty data folder that borrows the prepared checkpoints, stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="decodelab-bench-") as folder:
        (Path(folder) / "checkpoints").symlink_to((data / "checkpoints").resolve())
        environment = {**os.environ, "DECODELAB_DATA": folder, "DECODELAB_THREADS": str(torch.get_num_threads())}  # noqa: TID251 -- a child's environment
        log = Path(folder) / "up.log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "app.cli", "up"]
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_for(process, log)
            with open_stack(AppSettings(data=Path(folder))) as stack:
                yield stack
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_TIMEOUT_S)


def wait_for(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Return when the stack says that it is ready."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while "Decode Lab is ready" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise UnavailableError(f"The stack did not start: {log.read_text()[-2000:]}")
        time.sleep(0.1)


def report(measured: Measured, options: argparse.Namespace) -> None:
    bare = statistics.median(measured.bare_ms)
    token = statistics.median(measured.token_ms)
    first = statistics.median(measured.first_token_ms)
    print(f"{options.rounds} rounds of {options.tokens} tokens, {torch.get_num_threads()} threads, interleaved")
    print(f"bare forward pass            {spread(measured.bare_ms)} ms")
    print(
        f"token through the stack      {spread(measured.token_ms)} ms   +{token / bare - 1:.1%} (target {TARGET:.0%})"
    )
    print(f"the same, as received        {spread(measured.received_ms)} ms")
    print(
        f"queue to first token         {spread(measured.first_token_ms)} ms   beyond the prefill "
        f"(target {FIRST_TOKEN_TARGET_MS:.0f}: {'met' if first < FIRST_TOKEN_TARGET_MS else 'MISSED'})"
    )


def spread(values: list[float]) -> str:
    deciles = statistics.quantiles(values, n=10)
    return f"{statistics.median(values):8.2f} (p10 {deciles[0]:.2f}, p90 {deciles[-1]:.2f})"


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--data", type=Path, default=Path("data"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
