"""What a batch saves: arms over one prompt, streams beside a long prompt, tokens far into a text.

    python -m benchmarks.batching [--dtype float32] [--rounds 3] [--tokens 128] [--threads N]

Every ratio comes from one run in which both sides take turns. `generate()` is transformers' own, greedy, without any
probabilities; the engine samples and makes 20 candidates with their ledger for every token.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from models.environment import DEFAULT_CHECKPOINTS
from models.sampling import Settings
from workers.engine.catalog import Catalog, prepare
from workers.engine.checkpoint import Checkpoint, load_checkpoint
from workers.engine.engine import Engine, Request
from workers.engine.runner import Runner

NUM_ARMS = 8
PROMPT_POSITIONS = 512
LONG_POSITIONS = 4000
NUM_STREAMS = 4
NEAR, FAR = 128, 4096
WORDS = "The town began when settlers came over the hills, and every spring the river rose to meet them. "


def main() -> None:
    options = read_options()
    torch.set_num_threads(options.threads)
    entry = Catalog.parse(DEFAULT_CHECKPOINTS, options.data).entry()
    prepare(entry)
    checkpoint = load_checkpoint(entry, device="cpu", dtype=options.dtype)
    text = checkpoint.encode(WORDS * 400)
    print(f"{checkpoint.info.name}, {options.dtype}, {options.threads} threads")
    arms(checkpoint, text[:PROMPT_POSITIONS], options)
    gap(checkpoint, text)
    length(checkpoint, text)


def arms(checkpoint: Checkpoint, prompt_ids: tuple[int, ...], options: argparse.Namespace) -> None:
    """Wall time of 8 arms in one engine against 8 `generate()` calls."""
    together_s, single_s = [], []
    for number in range(options.rounds + 1):
        one = timed(lambda: generate(checkpoint, prompt_ids, options.tokens))
        all_arms = timed(lambda: run_arms(checkpoint, prompt_ids, options.tokens))
        two = timed(lambda: generate(checkpoint, prompt_ids, options.tokens))
        if number:  # the first round warms both sides up
            together_s.append(all_arms)
            single_s += [one, two]
    ratios = [NUM_ARMS * (a + b) / 2 / c for a, b, c in zip(single_s[::2], single_s[1::2], together_s, strict=True)]
    ours, theirs = statistics.median(together_s), statistics.median(single_s)
    print(
        f"{NUM_ARMS} arms, prompt {len(prompt_ids)}, {options.tokens} tokens each: {ours:.2f} s; one generate() "
        f"{theirs:.2f} s; {NUM_ARMS} of them take {spread(ratios)} times as long"
    )


def generate(checkpoint: Checkpoint, prompt_ids: tuple[int, ...], num_tokens: int) -> None:
    ids = torch.tensor([prompt_ids])
    with torch.inference_mode():
        checkpoint.network.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=num_tokens,
            max_new_tokens=num_tokens,
            pad_token_id=0,
        )


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


def gap(checkpoint: Checkpoint, text: tuple[int, ...]) -> None:
    """The longest step of 4 streams while a long prompt is prefilled beside them, in normal steps."""
    engine = Engine(checkpoint, num_rows=NUM_STREAMS + 1)
    for stream in range(NUM_STREAMS):
        engine.add(request(str(stream), text[stream : stream + 64], 10_000))
    for _ in range(5):
        engine.step()
    normal_s = [timed(engine.step) for _ in range(30)]
    engine.add(request("long", text[:LONG_POSITIONS], 1))
    beside_s = []
    while engine.num_active > NUM_STREAMS:
        beside_s.append(timed(engine.step))
    normal_s += [timed(engine.step) for _ in range(30)]
    normal = statistics.median(normal_s)
    print(
        f"{NUM_STREAMS} streams beside a prompt of {LONG_POSITIONS}: normal step {1000 * normal:.1f} ms; "
        f"{len(beside_s)} steps in {sum(beside_s):.2f} s, median {statistics.median(beside_s) / normal:.2f}, longest "
        f"{max(beside_s) / normal:.2f} normal steps"
    )


def length(checkpoint: Checkpoint, text: tuple[int, ...]) -> None:
    """Time per token after many positions against few; and the same passes without a cache."""
    near, far = (started(checkpoint, text[:num]) for num in (NEAR, FAR))
    near_s, far_s = [], []
    for _ in range(60):
        near_s.append(timed(near.step))
        far_s.append(timed(far.step))
    runner = Runner(checkpoint)
    with torch.inference_mode():
        bare = [statistics.median(uncached(runner, text[:num])) for num in (NEAR, FAR)]
    print(
        f"a token after {FAR} positions against {NEAR}: "
        f"{statistics.median(far_s) / statistics.median(near_s):.2f} times as long "
        f"({1000 * statistics.median(far_s):.1f} against {1000 * statistics.median(near_s):.1f} ms); "
        f"without a cache {bare[1] / bare[0]:.1f} times ({1000 * bare[1]:.0f} against {1000 * bare[0]:.0f} ms)"
    )


def uncached(runner: Runner, token_ids: tuple[int, ...]) -> Iterator[float]:
    for _ in range(3):
        yield timed(lambda: runner.uncached(token_ids, num_kept=1))


def started(checkpoint: Checkpoint, prompt_ids: tuple[int, ...]) -> Engine:
    engine = Engine(checkpoint)
    engine.add(request("a", prompt_ids, 1000))
    while not engine.step():
        pass
    return engine


def request(name: str, prompt_ids: tuple[int, ...], num_tokens: int, temperature: float = 0.8) -> Request:
    settings = Settings(seed=1, temperature=temperature, top_p=0.95, max_tokens=num_tokens, ignore_eos=True)
    return Request(name, prompt_ids, settings)


def timed(action: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    action()
    return time.perf_counter() - began_s


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--data", type=Path, default=Path("data"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
