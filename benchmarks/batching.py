"""What a batch saves: arms over one prompt, streams beside a long prompt, tokens far into a text.

    python -m benchmarks arms [--dtype float32]; python -m benchmarks gap length

Every ratio comes from one run in which both sides take turns. `generate()` is transformers' own, greedy, without any
probabilities; the engine samples and makes 20 candidates with their ledger for every token.
"""

import statistics

import torch

from benchmarks.machine import Bench, generate, request
from benchmarks.measure import Bound, Measure, at_least, at_most, ratios, timed
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine
from workers.engine.runner import Runner

NUM_ARMS = 8
PROMPT_POSITIONS = 512
LONG_POSITIONS = 4000
NUM_STREAMS = 4
NEAR, FAR = 128, 4096
ARMS_BOUNDS = {"float32": at_least(4), "bfloat16": at_least(7)}
GAP_BOUND = at_most(4)
LENGTH_BOUND = at_most(1.6)
NUM_PIECES = 3


def arms(bench: Bench) -> list[Measure]:
    """Wall time of 8 `generate()` calls against 8 arms in one engine."""
    checkpoint, num_tokens, prompt_ids = bench.checkpoint, bench.amounts.tokens, bench.text[:PROMPT_POSITIONS]
    generate(checkpoint, prompt_ids, 2)
    run_arms(checkpoint, prompt_ids, 2)
    single_s, together_s = [], []
    for _ in range(bench.amounts.rounds):
        before_s = timed(lambda: generate(checkpoint, prompt_ids, num_tokens))
        together_s.append(timed(lambda: run_arms(checkpoint, prompt_ids, num_tokens)))
        after_s = timed(lambda: generate(checkpoint, prompt_ids, num_tokens))
        single_s.append((before_s + after_s) / 2)
    bound: Bound | None = ARMS_BOUNDS.get(bench.dtype)
    detail = (
        f"{num_tokens} tokens each; the arms {statistics.median(together_s):.2f} s, one generate() "
        f"{statistics.median(single_s):.2f} s"
    )
    saved = ratios([NUM_ARMS * s for s in single_s], together_s)
    name = f"{NUM_ARMS} arms over a prompt of {PROMPT_POSITIONS} against {NUM_ARMS} generate() calls, {bench.dtype}"
    return [Measure.of(name, saved, bound=bound, detail=detail)]


def run_arms(checkpoint: Checkpoint, prompt_ids: tuple[int, ...], num_tokens: int) -> None:
    engine = Engine(checkpoint, num_rows=NUM_ARMS)
    for arm in range(NUM_ARMS):
        engine.add(request(str(arm), prompt_ids, num_tokens, temperature=0.4 + arm / 10))
    computed = 0
    while engine.has_work:
        for output in engine.step():
            computed += getattr(getattr(output.payload, "passes", None), "prompt_tokens_computed", 0)
    if computed != len(prompt_ids) + NUM_ARMS - 1:
        raise SystemExit(f"the arms computed {computed} prompt positions")


def gap(bench: Bench) -> list[Measure]:
    """The longest step of 4 streams while a long prompt is prefilled beside them, in normal steps."""
    engine = Engine(bench.checkpoint, num_rows=NUM_STREAMS + 1)
    for stream in range(NUM_STREAMS):
        engine.add(request(str(stream), bench.text[stream : stream + 64], 8000))
    for _ in range(5):
        engine.step()
    longest, median_steps, normal_ms = [], [], []
    for number in range(bench.amounts.rounds):
        normal_s = [timed(engine.step) for _ in range(bench.amounts.steps)]
        # Each begins elsewhere, so that none can take over the other's beginning.
        start = NUM_STREAMS + 1 + number
        engine.add(request(f"long {number}", bench.text[start : start + LONG_POSITIONS], 1))
        beside_s = []
        while engine.num_active > NUM_STREAMS:
            beside_s.append(timed(engine.step))
        normal_s += [timed(engine.step) for _ in range(bench.amounts.steps)]
        normal = statistics.median(normal_s)
        longest.append(max(beside_s) / normal)
        median_steps.append(statistics.median(beside_s) / normal)
        normal_ms.append(1000 * normal)
    detail = (
        f"in normal steps of {statistics.median(normal_ms):.1f} ms; the median step beside the prompt takes "
        f"{statistics.median(median_steps):.2f}"
    )
    name = f"longest gap of {NUM_STREAMS} streams beside a prompt of {LONG_POSITIONS:,}"
    return [Measure.of(name, longest, bound=GAP_BOUND, detail=detail)]


def length(bench: Bench) -> list[Measure]:
    """Time per token after many positions against few; and the same passes without a cache."""
    near, far = (started(bench.checkpoint, bench.text[:num]) for num in (NEAR, FAR))
    runner = Runner(bench.checkpoint)
    cached, uncached, near_ms, far_ms = [], [], [], []
    for _ in range(NUM_PIECES):
        near_s, far_s = [], []
        for _ in range(bench.amounts.steps // 2):
            near_s.append(timed(near.step))
            far_s.append(timed(far.step))
        near_ms.append(1000 * statistics.median(near_s))
        far_ms.append(1000 * statistics.median(far_s))
        cached.append(far_ms[-1] / near_ms[-1])
        with torch.inference_mode():
            bare = [timed(lambda num=num: runner.uncached(bench.text[:num], num_kept=1)) for num in (NEAR, FAR)]
        uncached.append(bare[1] / bare[0])
    detail = f"{statistics.median(far_ms):.1f} against {statistics.median(near_ms):.1f} ms"
    name = f"a token after {FAR:,} positions against {NEAR}"
    return [
        Measure.of(name, cached, bound=LENGTH_BOUND, detail=detail),
        Measure.of(f"{name}, without a cache", uncached),
    ]


def started(checkpoint: Checkpoint, prompt_ids: tuple[int, ...]) -> Engine:
    engine = Engine(checkpoint)
    engine.add(request("a", prompt_ids, 1000))
    while not engine.step():
        pass
    return engine
