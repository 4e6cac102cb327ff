"""What probabilities, candidates, events and rows add to the bare forward pass, per token.

    python -m benchmarks.overhead [--steps 150] [--threads N] [--context 64]

One run, interleaved: a bare cached decode pass of the same network over the same number of positions, then one step of
the engine and the encoding of its event and its row, for each of several settings. Medians, with the 10th and 90th
percentile, so that a noisy machine shows. The queue and the database's own time are not in it.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import Amounts, open_bench
from models.db.ledger import token_row
from models.events import Event, TokenPicked
from models.sampling import Settings
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine, Request
from workers.engine.runner import Runner

TARGET = 0.15
WARM_UP_STEPS = 5
SENTENCE = "The quick brown fox jumps over the lazy dog. "
CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "neutral": {},
    "top_p": {"temperature": 0.8, "top_p": 0.95},
    "all": {
        "temperature": 0.8,
        "top_k": 100,
        "top_p": 0.95,
        "min_p": 0.02,
        "typical_p": 0.95,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "no_repeat_ngram_size": 3,
    },
}


@dataclass
class Case:
    """One engine with one sequence that does not end, and what its steps took."""

    name: str
    engine: Engine
    seq: int = 1
    step_ms: list[float] = field(default_factory=list)
    write_ms: list[float] = field(default_factory=list)

    def step(self) -> None:
        began_s = time.perf_counter()
        outputs = self.engine.step()
        stepped_s = time.perf_counter()
        for output in outputs:
            self.seq += 1
            event = Event(output.sequence_id, 1, self.seq, output.payload)
            event.encode()
            if isinstance(output.payload, TokenPicked):
                token_row(event)
        self.step_ms.append((stepped_s - began_s) * 1000)
        self.write_ms.append((time.perf_counter() - stepped_s) * 1000)


def main() -> None:
    options = read_options()
    checkpoint = open_bench(options.data, Amounts(threads=options.threads)).checkpoint
    prompt_ids = (checkpoint.encode(SENTENCE) * options.context)[: options.context]
    bare = bare_pass(checkpoint, prompt_ids)
    cases = [start(checkpoint, prompt_ids, name, options.steps) for name in CASES]
    bare_ms: list[float] = []
    for number in range(WARM_UP_STEPS + options.steps):
        if number == WARM_UP_STEPS:
            forget([bare_ms, *(times for case in cases for times in (case.step_ms, case.write_ms))])
        began_s = time.perf_counter()
        bare()
        bare_ms.append((time.perf_counter() - began_s) * 1000)
        for case in cases:
            case.step()
    print(f"{checkpoint.info.name}, {options.threads} threads, {options.context} positions + {options.steps} steps")
    print(f"{'':22}{'median':>9}{'p10':>9}{'p90':>9}   over the bare pass")
    show("bare forward pass", bare_ms, bare_ms)
    for case in cases:
        show(f"{case.name}: step", case.step_ms, bare_ms)
        show(
            f"{case.name}: step + event + row",
            [a + b for a, b in zip(case.step_ms, case.write_ms, strict=True)],
            bare_ms,
        )
    print(f"target: under {TARGET:.0%}")


def bare_pass(checkpoint: Checkpoint, prompt_ids: tuple[int, ...]) -> Callable[[], None]:
    """One cached decode pass a call, and nothing else."""
    runner = Runner(checkpoint)
    cache = runner.new_cache()
    with torch.inference_mode():
        runner.prefill(cache, prompt_ids)
    token = torch.tensor([[prompt_ids[0]]])

    @torch.inference_mode()
    def call() -> None:
        checkpoint.network(input_ids=token, cache=cache.layers, use_cache=True)

    return call


def start(checkpoint: Checkpoint, prompt_ids: tuple[int, ...], name: str, num_steps: int) -> Case:
    engine = Engine(checkpoint)
    settings = Settings.parse(
        {**CASES[name], "seed": 1, "max_tokens": num_steps + 2 * WARM_UP_STEPS, "ignore_eos": True}
    )
    engine.add(Request(name, prompt_ids, settings))
    engine.step()  # the prefill and the first token
    return Case(name, engine)


def forget(lists: list[list[float]]) -> None:
    for times in lists:
        times.clear()


def show(label: str, times_ms: list[float], bare_ms: list[float]) -> None:
    median, bare = statistics.median(times_ms), statistics.median(bare_ms)
    deciles = statistics.quantiles(times_ms, n=10)
    # Neighbours in time share the machine's mood: the spread is that of the differences, pair by pair.
    extra = statistics.quantiles([(a - b) / bare for a, b in zip(times_ms, bare_ms, strict=True)], n=4)
    print(
        f"{label:22}{median:9.2f}{deciles[0]:9.2f}{deciles[-1]:9.2f}   "
        f"{median / bare - 1:+.1%}  (pairs: median {extra[1]:+.1%}, quartiles {extra[0]:+.1%} to {extra[2]:+.1%})"
    )


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--context", type=int, default=64, help="positions of the prompt")
    parser.add_argument("--data", type=Path, default=Path("data"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
