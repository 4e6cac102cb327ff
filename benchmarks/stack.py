"""What the whole stack adds to the network: queue to first token, and time per token, with the embedded stack running.

    python -m benchmarks.stack [--rounds 8] [--tokens 64]
    python -m benchmarks stack

The second compares whole runs with transformers' `generate()`, both by the clock, and weighs the worker.

Interleaved in one run: a few bare cached decode passes in this process, then one run through submit, queue, worker,
database and stream, followed to its end. While one side works the other is idle, so both have the machine to
themselves and meet the same noise. Both use the same number of threads and of cached positions.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from app.stack import Stack
from benchmarks.embedded import Running, embedded_stack
from benchmarks.machine import Amounts, Bench, generate, open_bench
from benchmarks.measure import Measure, at_least, at_most, ratios, timed
from benchmarks.overhead import TARGET, bare_pass
from models.events import Ended, TokenPicked
from models.sampling import Settings

PROMPT = "The capital of France is"
FIRST_TOKEN_TARGET_MS = 400.0
THROUGHPUT_BOUND = at_least(1.2)


@dataclass
class Measured:
    """Milliseconds, one number a round, except `bare_ms`, one a pass."""

    bare_ms: list[float] = field(default_factory=list)
    token_ms: list[float] = field(default_factory=list)  # the run's own inter-token median
    received_ms: list[float] = field(default_factory=list)  # the same as its reader saw it
    first_token_ms: list[float] = field(default_factory=list)  # submit to received, less the prefill


def main() -> None:
    options = read_options()
    checkpoint = open_bench(options.data, Amounts()).checkpoint
    prompt_ids = checkpoint.encode(PROMPT)
    measured = Measured()
    with embedded_stack(options.data, threads=torch.get_num_threads()) as running:
        stack = running.stack
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


def throughput(bench: Bench, running: Running) -> list[Measure]:
    """Tokens per second from submit to the last event, against `generate()`; and the wait for the first token."""
    prompt_ids, num_tokens = bench.checkpoint.encode(PROMPT), bench.amounts.tokens
    theirs_s, ours_s, measured = [], [], Measured()
    for number in range(bench.amounts.rounds + 1):
        one_theirs_s = timed(lambda: generate(bench.checkpoint, prompt_ids, num_tokens))
        one = measured if number else Measured()  # the first round warms both sides up
        one_ours_s = timed(lambda one=one: asyncio.run(measure_run(one, running.stack, num_tokens)))
        if number:
            theirs_s.append(one_theirs_s)
            ours_s.append(one_ours_s)
    per_s = [num_tokens / statistics.median(values) for values in (ours_s, theirs_s)]
    return [
        Measure.of(
            "a run through the whole stack against generate() alone",
            ratios(theirs_s, ours_s),
            bound=THROUGHPUT_BOUND,
            detail=f"{num_tokens} tokens; {per_s[0]:.1f} against {per_s[1]:.1f} tokens/s, 20 candidates against none",
        ),
        Measure.of(
            "submit to first token, beyond the prefill",
            measured.first_token_ms,
            unit="ms",
            bound=at_most(FIRST_TOKEN_TARGET_MS),
        ),
    ]


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
