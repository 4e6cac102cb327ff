"""`make bench`: every measured claim, and what it is held to.

    python -m benchmarks                  all of it; writes benchmarks/results.json
    python -m benchmarks arms floor       some of it, only printed; --keep writes it beside the rest
    python -m benchmarks --long           what takes minutes more; its last result is kept in the same file
    python -m benchmarks.table            writes the table of README.md anew

A measure is the median of its rounds, with the smallest and the largest. In each round both sides take turns, so that
they meet the same noise. Both have the same checkpoint, number format and threads.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.batching import arms, gap, length
from benchmarks.continuous import continuous
from benchmarks.delivery import delivery
from benchmarks.embedded import embedded_stack
from benchmarks.floor import floor, llama_cpp
from benchmarks.machine import Amounts, Bench, facts, open_bench
from benchmarks.measure import RESULTS, Measure, Report, read_results, write_report
from benchmarks.memory import growth, resident
from benchmarks.share import share
from benchmarks.stack import throughput

Part = Callable[[Bench], list[Measure]]


def stack(bench: Bench) -> list[Measure]:
    """What needs the running stack."""
    with embedded_stack(bench.data, threads=bench.amounts.threads) as running:
        found = throughput(bench, running) + resident(bench, running)
        return found + delivery(bench, running)


def long(bench: Bench) -> list[Measure]:
    """What takes minutes."""
    with embedded_stack(bench.data, threads=bench.amounts.threads) as running:
        return growth(running)


def arms_in_bfloat16(bench: Bench) -> list[Measure]:
    """The arms with half the bytes."""
    return arms(open_bench(bench.data, bench.amounts, dtype="bfloat16"))


PARTS: dict[str, Part] = {
    "stack": stack,
    "arms": arms,
    "bfloat16": arms_in_bfloat16,
    "continuous": continuous,
    "share": share,
    "length": length,
    "gap": gap,
    "floor": floor,
}


def main() -> None:
    options = read_options()
    bench = open_bench(options.data, Amounts(options.threads, options.rounds, options.tokens, options.steps))
    machine = facts(bench)
    print(", ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
    parts = {**PARTS, "llama.cpp": lambda bench: llama_cpp(bench, options.gguf)}
    chosen = {"long": long} if options.long else {name: parts[name] for name in options.parts or parts}
    measures = tuple(measured(bench, chosen))
    missed = [measure.name for measure in measures if measure.is_met is False]
    print(f"{len(missed)} bounds missed" + "".join(f"\n    {name}" for name in missed))
    name, report = "long" if options.long else "bench", Report(machine, measures)
    if options.parts and options.keep:
        report = read_results(options.results).get(name, Report(machine, ())).updated(report)
    if options.keep or not options.parts:
        write_report(name, report, options.results)
        print(f"written to {options.results}")


def measured(bench: Bench, parts: dict[str, Part]) -> Iterator[Measure]:
    """What the parts found, one part after the other, told as it comes."""
    for name, part in parts.items():
        began_s = time.perf_counter()
        for measure in part(bench):
            print(measure, flush=True)
            yield measure
        print(f"    [{name}: {time.perf_counter() - began_s:.0f} s]", flush=True)


def read_options() -> argparse.Namespace:
    usual = Amounts()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS, "llama.cpp"], help=", ".join([*PARTS, "llama.cpp"]))
    parser.add_argument("--long", action="store_true", help="what takes minutes more, and nothing else")
    parser.add_argument("--keep", action="store_true", help="write what the named parts found")
    parser.add_argument("--rounds", type=int, default=usual.rounds)
    parser.add_argument("--tokens", type=int, default=usual.tokens, help="of a run")
    parser.add_argument("--steps", type=int, default=usual.steps, help="of an engine, in a round")
    parser.add_argument("--threads", type=int, default=usual.threads)
    parser.add_argument("--gguf", type=Path, help="the default checkpoint for llama.cpp")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
