"""A worker that also notes when each of its attempts began, so that others can tell when a token was picked.

    python -m benchmarks.worker FILE

A line of the file is `sequence id`, a space and seconds of `time.perf_counter()`, which on Linux is one clock for all
processes. An event's `elapsed_ms` counts from there.
"""

import sys
from pathlib import Path

import workers.__main__
import workers.worker
from models.events import Prefilled
from workers.engine.engine import Engine, Output


class NotingEngine(Engine):
    """The engine, but for the line that it writes after a prefill."""

    def step(self) -> list[Output]:
        outputs = super().step()
        for output in outputs:
            if isinstance(output.payload, Prefilled) and output.sequence_id in self._sequences:
                began_s = self._sequences[output.sequence_id].counters.began_s
                with Path(sys.argv[1]).open("a", encoding="utf-8") as notes:
                    notes.write(f"{output.sequence_id} {began_s!r}\n")
        return outputs


if __name__ == "__main__":
    workers.worker.Engine = NotingEngine  # type: ignore[misc]  # what a worker is built of
    sys.exit(workers.__main__.main())
