"""How far a step is from what is possible: transformers' bare pass, and reading the weights once from memory.

    python -m benchmarks floor

With llama.cpp installed (`llama-bench` on the path) and `--gguf FILE` for the same checkpoint, its tokens too.
"""

import json
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import Bench, open_bench
from benchmarks.measure import Measure, ratios, timed
from benchmarks.overhead import Case, bare_pass, start

NUM_POSITIONS = 64
WARM_UP_STEPS = 5
NUM_BYTES = 10**9


def floor(bench: Bench) -> list[Measure]:
    """One bare pass, one step and one reading of a gigabyte, again and again."""
    step = stepping(bench)
    bare = bare_pass(bench.checkpoint, bench.text[:NUM_POSITIONS])
    memory = torch.ones(NUM_BYTES // 4)
    for _ in range(WARM_UP_STEPS):
        bare()
        step()
        memory.max()
    bare_ms, step_ms, read_ms = [], [], []
    weight_bytes = sum(parameter.nbytes for parameter in bench.checkpoint.network.parameters())
    for _ in range(bench.amounts.rounds):
        bare_s, step_s, read_s = [], [], []
        for number in range(bench.amounts.steps):
            bare_s.append(timed(bare))
            step_s.append(timed(step))
            if number % 4 == 0:
                read_s.append(timed(lambda: memory.max()))
        bare_ms.append(1000 * statistics.median(bare_s))
        step_ms.append(1000 * statistics.median(step_s))
        read_ms.append(1000 * statistics.median(read_s) * weight_bytes / memory.nbytes)
    ours, theirs, limit = (statistics.median(values) for values in (step_ms, bare_ms, read_ms))
    gb_per_s = weight_bytes / limit / 1e6
    return [
        in_int8(bench),
        Measure.of(
            "a step against transformers' bare pass",
            ratios(step_ms, bare_ms),
            detail=f"{ours:.1f} against {theirs:.1f} ms, {NUM_POSITIONS} positions and more",
        ),
        Measure.of(
            "a step against reading the weights once",
            ratios(step_ms, read_ms),
            detail=f"{ours:.1f} against {limit:.1f} ms: {weight_bytes / 1e6:.0f} MB at {gb_per_s:.1f} GB/s",
        ),
    ]


def in_int8(bench: Bench) -> Measure:
    """A step with weights of 8 bits and one in float32, in turns."""
    rounded = stepping(open_bench(bench.data, bench.amounts, dtype="int8"))
    step = stepping(bench)
    for _ in range(WARM_UP_STEPS):
        step()
        rounded()
    step_ms, rounded_ms = [], []
    for _ in range(bench.amounts.rounds):
        pairs = [(timed(step), timed(rounded)) for _ in range(bench.amounts.steps)]
        step_ms.append(1000 * statistics.median(one for one, _ in pairs))
        rounded_ms.append(1000 * statistics.median(other for _, other in pairs))
    ours, theirs = statistics.median(rounded_ms), statistics.median(step_ms)
    detail = f"{ours:.1f} against {theirs:.1f} ms"
    return Measure.of("a step in float32 against one in int8", ratios(step_ms, rounded_ms), detail=detail)


def stepping(bench: Bench) -> Any:
    """The step of an engine with one run of neutral settings."""
    num_steps = bench.amounts.rounds * bench.amounts.steps + WARM_UP_STEPS
    case: Case = start(bench.checkpoint, bench.text[:NUM_POSITIONS], "neutral", num_steps)
    return case.engine.step


def llama_cpp(bench: Bench, gguf: Path | None) -> list[Measure]:
    """Our step against llama.cpp's, which makes tokens alone. Nothing, and a line that says so, where it is missing."""
    program = shutil.which("llama-bench")
    if program is None or gguf is None:
        missing = "llama-bench is not installed" if program is None else "--gguf names no file"
        print(f"llama.cpp: skipped, {missing}")
        return []
    step = stepping(bench)
    for _ in range(WARM_UP_STEPS):
        step()
    theirs_ms, ours_ms, kind = [], [], ""
    for _ in range(bench.amounts.rounds):
        command = [program, "-m", str(gguf), "-t", str(bench.amounts.threads), "-p", "0", "-n", "64", "-r", "1"]
        answer = subprocess.run([*command, "-o", "json"], capture_output=True, check=True, text=True)
        found = json.loads(answer.stdout)[0]
        theirs_ms.append(1000 / found["avg_ts"])
        kind = found["model_type"]
        ours_ms.append(1000 * statistics.median(timed(step) for _ in range(bench.amounts.steps)))
    detail = f"{statistics.median(ours_ms):.1f} against {statistics.median(theirs_ms):.1f} ms, {kind}"
    return [Measure.of("a step against llama.cpp's", ratios(ours_ms, theirs_ms), detail=detail)]
