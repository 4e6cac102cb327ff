"""Many runs of unlike lengths: our engine against transformers' own continuous batching, in tokens per second.

    python -m benchmarks continuous

Both sides are greedy, ignore the end of text and make the same number of tokens for each run. transformers gets what
it needs before the clock starts (its cache, its thread, its warm-up) and makes tokens alone; the engine makes 20
candidates with their ledger for each.
"""

import logging
import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from benchmarks.machine import Bench, request
from benchmarks.measure import Measure, at_least, ratios, timed
from models.errors import DecodeLabError
from models.events import Ended
from workers.engine.engine import Engine

NUM_RUNS = 64
NUM_ROWS = 64  # as many as transformers may take at once
PADDED_ROWS = 8
PROMPT_LENGTHS = (8, 96)
BOUND = at_least(1.2)
# All runs fit at once, so nothing waits: a page for 16 positions, and room for a half more pages than they fill.
PAGE_POSITIONS = 16
NUM_PAGES = NUM_RUNS * 24
MAX_BATCH_POSITIONS = 512  # the engine's own budget of a step


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run."""

    prompt_ids: tuple[int, ...]
    num_tokens: int


def continuous(bench: Bench) -> list[Measure]:
    """The 64 runs by both sides in turns."""
    wanted = list(mixed(bench))
    total = sum(one.num_tokens for one in wanted)
    ours_s, theirs_s = [], []
    name = f"{NUM_RUNS} runs of unlike lengths against "
    try:
        with manager(bench) as add_all:
            add_all(wanted[:2])
            by_engine(bench, wanted[:2])
            for _ in range(bench.amounts.rounds):
                theirs_s.append(timed(lambda: add_all(wanted)))
                ours_s.append(timed(lambda: by_engine(bench, wanted)))
        name, why = f"{name}transformers' continuous batching", ""
    except (RuntimeError, ValueError, NotImplementedError) as exc:
        ours_s, theirs_s = [], []
        for _ in range(bench.amounts.rounds):
            theirs_s.append(timed(lambda: padded(bench, wanted)))
            ours_s.append(timed(lambda: by_engine(bench, wanted)))
        name, why = f"{name}padded generate() of {PADDED_ROWS}", f"; continuous batching does not run here: {exc}"
    detail = (
        f"{total} tokens, {NUM_ROWS} rows; {total / statistics.median(ours_s):.0f} against "
        f"{total / statistics.median(theirs_s):.0f} tokens/s{why}"
    )
    return [Measure.of(name, ratios(theirs_s, ours_s), bound=BOUND, detail=detail)]


def mixed(bench: Bench) -> Iterator[Wanted]:
    """Prompts that share no beginning, of 8 to 96 positions, and outputs up to half the usual length."""
    draw = random.Random(0)
    for _ in range(NUM_RUNS):
        prompt_ids = tuple(draw.choices(bench.text, k=draw.randint(*PROMPT_LENGTHS)))
        yield Wanted(prompt_ids, draw.randint(4, max(4, bench.amounts.tokens // 2)))


def by_engine(bench: Bench, wanted: list[Wanted]) -> None:
    """Raises DecodeLabError where a run is short of tokens: the time would be that of less work."""
    engine = Engine(bench.checkpoint, num_rows=NUM_ROWS)
    for number, one in enumerate(wanted):
        engine.add(request(str(number), one.prompt_ids, one.num_tokens, temperature=0.0, top_p=1.0))
    num_tokens: dict[str, int] = {}
    while engine.has_work:
        ended = (output for output in engine.step() if isinstance(output.payload, Ended))
        num_tokens.update({output.sequence_id: output.payload.num_tokens for output in ended})
    for number, one in enumerate(wanted):
        if num_tokens[str(number)] != one.num_tokens:
            raise DecodeLabError(f"run {number}: {num_tokens[str(number)]} of {one.num_tokens} tokens")


@contextmanager
def manager(bench: Bench) -> Iterator[Callable[[list[Wanted]], None]]:
    """A function that brings runs to their end by continuous batching, which is what `generate_batch` does inside. Its
    caller may give every run the same number of tokens only; the manager takes one for each."""
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=bench.amounts.tokens)
    config = ContinuousBatchingConfig(
        page_size=PAGE_POSITIONS,
        num_blocks=NUM_PAGES,
        max_batch_tokens=MAX_BATCH_POSITIONS,
        max_requests_per_batch=NUM_ROWS,
    )
    network = bench.checkpoint.network
    with network.continuous_batching_context_manager(generation, continuous_batching_config=config) as running:

        def add_all(wanted: list[Wanted]) -> None:
            missing = {
                running.add_request(list(one.prompt_ids), max_new_tokens=one.num_tokens, eos_token_id=-1): one
                for one in wanted
            }
            while missing:
                result = running.get_result(timeout=1)
                if result is None and not running.is_running():
                    raise RuntimeError("its thread has ended")
                if result is not None and result.is_finished():
                    one = missing.pop(result.request_id)
                    if result.error is not None or len(result.generated_tokens) != one.num_tokens:
                        raise RuntimeError(f"{len(result.generated_tokens)} of {one.num_tokens} tokens: {result.error}")

        yield add_all


def padded(bench: Bench, wanted: list[Wanted]) -> None:
    """Runs in batches of like length, each batch for as many tokens as its longest run wants."""
    alike = sorted(wanted, key=lambda one: one.num_tokens)
    for start in range(0, len(alike), PADDED_ROWS):
        part = alike[start : start + PADDED_ROWS]
        width, num_tokens = max(len(one.prompt_ids) for one in part), part[-1].num_tokens
        ids = torch.zeros(len(part), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, one in enumerate(part):
            ids[row, width - len(one.prompt_ids) :] = torch.tensor(one.prompt_ids)
            mask[row, width - len(one.prompt_ids) :] = 1
        with torch.inference_mode():
            bench.checkpoint.network.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,
                min_new_tokens=num_tokens,
                max_new_tokens=num_tokens,
                pad_token_id=0,
            )
