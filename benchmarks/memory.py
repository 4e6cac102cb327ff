"""What a worker's process holds of the machine's memory.

python -m benchmarks stack       after a few runs
python -m benchmarks --long      after 200 and after 2,000 short runs
"""

import asyncio

import psutil

from benchmarks.embedded import Running
from benchmarks.machine import Bench
from benchmarks.measure import Measure, at_most
from benchmarks.stack import PROMPT
from models.events import Ended
from models.sampling import Settings
from workers.engine.memory import KEPT_BYTES

FIXED_BYTES = 700e6  # Python, torch, transformers and the compiled kernels
WEIGHTS_FACTOR = 1.3
EARLY, LATE = 200, 2000
AT_ONCE = 16
NUM_KINDS = 64
GROWTH_BOUND = at_most(1.05)


def resident(bench: Bench, running: Running) -> list[Measure]:
    """The worker's resident set after 8 runs, against weights, keys and values, and what every worker needs."""
    info = bench.checkpoint.info
    kinds = [kind(number, bench.amounts.tokens) for number in range(8)]
    kv_bytes = asyncio.run(run_all(running, kinds))
    weight_bytes = sum(parameter.nbytes for parameter in bench.checkpoint.network.parameters())
    limit = WEIGHTS_FACTOR * weight_bytes + min(kv_bytes, KEPT_BYTES) + FIXED_BYTES
    detail = (
        f"{WEIGHTS_FACTOR} x {weight_bytes / 1e6:.0f} MB of weights, {min(kv_bytes, KEPT_BYTES) / 1e6:.0f} MB of keys "
        f"and values, {FIXED_BYTES / 1e6:.0f} MB; {info.name}"
    )
    name = "resident memory of the worker"
    return [Measure.of(name, [resident_mb(running)], unit="MB", bound=at_most(round(limit / 1e6)), detail=detail)]


def growth(running: Running) -> list[Measure]:
    """The resident set after 2,000 runs of 2 to 8 tokens against that after 200.

    They are of 64 kinds, so that what ended runs leave behind for others is complete before the first look.
    """
    kinds = [kind(number % NUM_KINDS, 2 + number % NUM_KINDS % 7) for number in range(LATE)]
    asyncio.run(run_all(running, kinds[:EARLY]))
    early = resident_mb(running)
    asyncio.run(run_all(running, kinds[EARLY:]))
    late = resident_mb(running)
    detail = f"{late:.0f} MB after {LATE:,}, {early:.0f} MB after {EARLY}"
    return [Measure.of("memory after 2,000 runs against 200", [late / early], bound=GROWTH_BOUND, detail=detail)]


def kind(number: int, num_tokens: int) -> tuple[str, Settings]:
    """A prompt and settings."""
    settings = Settings(max_tokens=num_tokens, ignore_eos=True, seed=number)
    return f"{number}. {PROMPT}", settings


async def run_all(running: Running, kinds: list[tuple[str, Settings]]) -> int:
    """Bring runs to their end, a few at a time; the bytes of keys and values that they held at their ends."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(prompt: str, settings: Settings) -> int:
        async with places:
            run_id = await asyncio.to_thread(running.stack.submitter.submit, prompt, settings)
            held = 0
            async for event in running.stack.follower.follow(run_id):
                if isinstance(event.payload, Ended):
                    held = event.payload.kv_bytes
            return held

    return sum(await asyncio.gather(*(one(*values) for values in kinds)))


def resident_mb(running: Running) -> float:
    return float(psutil.Process(running.worker.pid).memory_info().rss / 1e6)
