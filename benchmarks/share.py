"""What of an engine's step is not the forward pass: noise, pick, ledger, candidates, stop rules and text.

python -m benchmarks share
"""

import statistics
import time
from typing import Any

from benchmarks.machine import Bench, request
from benchmarks.measure import Measure, at_most
from workers.engine.engine import Engine

NUM_POSITIONS = 64
WARM_UP_STEPS = 5
BOUNDS = {1: at_most(10), 8: at_most(15)}
CASES: dict[str, dict[str, Any]] = {
    "neutral": {"temperature": 1.0, "top_p": 1.0},
    "temperature 0.8, top_p 0.95": {"temperature": 0.8, "top_p": 0.95},
}


class Watched:
    """An engine whose forward passes are timed."""

    def __init__(self, bench: Bench, num_rows: int, settings: dict[str, Any]) -> None:
        self.engine = Engine(bench.checkpoint, num_rows=num_rows)
        self.pass_s = 0.0
        run = self.engine._runner.run

        def timed_run(passes: Any) -> Any:
            began_s = time.perf_counter()
            answers = run(passes)
            self.pass_s += time.perf_counter() - began_s
            return answers

        self.engine._runner.run = timed_run  # type: ignore[method-assign]  # where the engine runs the network
        num_tokens = bench.amounts.rounds * bench.amounts.steps + 2 * WARM_UP_STEPS
        for row in range(num_rows):
            self.engine.add(request(str(row), bench.text[row : row + NUM_POSITIONS], num_tokens, **settings))
        for _ in range(WARM_UP_STEPS):
            self.engine.step()

    def share(self) -> float:
        """Per cent of one step."""
        self.pass_s = 0.0
        began_s = time.perf_counter()
        self.engine.step()
        return 100 * (1 - self.pass_s / (time.perf_counter() - began_s))


def share(bench: Bench) -> list[Measure]:
    """A value is the median of the steps of one round; the engines take turns step by step."""
    watched = {(name, rows): Watched(bench, rows, settings) for name, settings in CASES.items() for rows in BOUNDS}
    values: dict[tuple[str, int], list[float]] = {case: [] for case in watched}
    for _ in range(bench.amounts.rounds):
        steps: dict[tuple[str, int], list[float]] = {case: [] for case in watched}
        for _ in range(bench.amounts.steps):
            for case, one in watched.items():
                steps[case].append(one.share())
        for case, shares in steps.items():
            values[case].append(statistics.median(shares))
    return [
        Measure.of(
            f"a step beside its forward pass, {rows} {'row' if rows == 1 else 'rows'}, {name}",
            shares,
            unit="%",
            bound=BOUNDS[rows],
        )
        for (name, rows), shares in values.items()
    ]
