"""What the numbers of one step cost: raw logits in, ledger entries out, in milliseconds.

    python -m benchmarks.numbers [--vocab 49152] [--repeat 100] [--cpu] [--json]

A line is one set of settings over 1 or 8 rows under 1 or 2 torch threads: `process`, `pick` and `write` apart and
together, the median of `--repeat` rounds on the wall clock, or with `--cpu` the process's own CPU time, which other
programs on the machine disturb less. `yardstick` is one float64 log-softmax of a row, taken at
the same time: it tells how busy the machine was. An idle core needs about 0.08 ms for 49,152 numbers.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from models.sampling import Settings
from workers.engine.ledger import write
from workers.engine.logits.pipeline import Row, process
from workers.engine.sampler import pick

CASES: dict[str, dict[str, Any]] = {
    "neutral": {},
    "greedy": {"temperature": 0},
    "top_k + top_p": {"top_k": 50, "top_p": 0.9},
    "hot top_p": {"temperature": 1.5, "top_p": 0.95},
    "everything": {
        "temperature": 0.8,
        "top_k": 50,
        "top_p": 0.9,
        "min_p": 0.02,
        "typical_p": 0.95,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.2,
        "no_repeat_ngram_size": 3,
        "min_tokens": 1000,
        "logit_bias": {"5": 1.0, "7": -1.0},
        "banned": [9],
    },
}
POSITION = 7


def rows_of(values: dict[str, Any], num_rows: int, vocab_size: int) -> list[Row]:
    """Runs with a prompt of 300 tokens and an output of 200."""
    prompt = [i * 31 % vocab_size for i in range(300)]
    output = [i * 17 % vocab_size for i in range(200)]
    banned = frozenset(values.get("banned", ()))
    return [
        Row(Settings.parse(values | {"seed": i}), prompt, output, banned_ids=banned, end_token_ids=frozenset({2}))
        for i in range(num_rows)
    ]


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Median duration of an action, in milliseconds."""

    clock: Callable[[], float]  # seconds
    repeat: int
    warm_up: int = 5

    def __call__(self, action: Callable[[], object]) -> float:
        times = []
        for _ in range(self.warm_up + self.repeat):
            start = self.clock()
            action()
            times.append((self.clock() - start) * 1000)
        return round(statistics.median(times[self.warm_up :]), 3)


@torch.inference_mode()
def measure(name: str, stopwatch: Stopwatch, *, num_rows: int, threads: int, vocab_size: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    # Like a language model's: a few dozen likely tokens over a wide, unlikely rest.
    logits = torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(0)) * 2.5
    logits[:, :50] += 12
    rows = rows_of(CASES[name], num_rows, vocab_size)
    positions = [POSITION] * num_rows
    processed = process(logits, rows)
    picks = pick(processed, rows, positions)
    parts = {
        "yardstick": stopwatch(lambda: logits[:1].log_softmax(dim=-1, dtype=torch.float64)),
        "process": stopwatch(lambda: process(logits, rows)),
        "pick": stopwatch(lambda: pick(processed, rows, positions)),
        "write": stopwatch(lambda: write(processed, picks, rows)),
    }
    total = round(parts["process"] + parts["pick"] + parts["write"], 3)
    return {"settings": name, "rows": num_rows, "threads": threads, **parts, "total": total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, default=49152)
    parser.add_argument("--repeat", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()
    stopwatch = Stopwatch(time.process_time if arguments.cpu else time.perf_counter, arguments.repeat)
    results = [
        measure(name, stopwatch, num_rows=num_rows, threads=threads, vocab_size=arguments.vocab)
        for threads in (1, 2)
        for num_rows in (1, 8)
        for name in CASES
    ]
    if arguments.json:
        print(json.dumps(results))
        return
    print("settings       rows threads  process    pick   write    total yardstick")
    for r in results:
        print(
            f"{r['settings']:14} {r['rows']:4} {r['threads']:7} {r['process']:8.3f} {r['pick']:7.3f} "
            f"{r['write']:7.3f} {r['total']:8.3f} {r['yardstick']:9.3f}"
        )


if __name__ == "__main__":
    main()
