"""What the numbers were measured on, and the parts that every benchmark works with."""

import gc
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from models.environment import DEFAULT_CHECKPOINTS
from models.sampling import Settings
from workers.engine.catalog import Catalog, prepare
from workers.engine.checkpoint import Checkpoint, load_checkpoint
from workers.engine.engine import Request

WORDS = "The town began when settlers came over the hills, and every spring the river rose to meet them. "
NUM_POSITIONS = 5000


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything is measured."""

    threads: int = field(default_factory=torch.get_num_threads)
    rounds: int = 3
    tokens: int = 128  # of a run
    steps: int = 40  # of an engine, in a round


@dataclass(frozen=True, slots=True)
class Bench:
    """What every benchmark works with."""

    checkpoint: Checkpoint
    text: tuple[int, ...]  # token ids, NUM_POSITIONS of them
    data: Path
    amounts: Amounts

    @property
    def dtype(self) -> str:
        return self.checkpoint.info.dtype


def open_bench(data: Path, amounts: Amounts, *, dtype: str = "float32") -> Bench:
    """The default checkpoint on the CPU, prepared where it is not yet."""
    torch.set_num_threads(amounts.threads)
    entry = Catalog.parse(DEFAULT_CHECKPOINTS, data).entry()
    prepare(entry)
    checkpoint = load_checkpoint(entry, device="cpu", dtype=dtype)
    gc.freeze()  # as a worker does: what stays loaded is not looked through again
    text = checkpoint.encode(WORDS * (NUM_POSITIONS // 16))[:NUM_POSITIONS]
    return Bench(checkpoint, text, data, amounts)


def request(name: str, prompt_ids: tuple[int, ...], num_tokens: int, **settings: Any) -> Request:
    """A run of exactly `num_tokens`, with 20 candidates for each."""
    values = {"seed": 1, "temperature": 0.8, "top_p": 0.95, **settings}
    return Request(name, prompt_ids, Settings.parse({**values, "max_tokens": num_tokens, "ignore_eos": True}))


def generate(checkpoint: Checkpoint, prompt_ids: tuple[int, ...], num_tokens: int) -> None:
    """transformers' own `generate()`: greedy, cached, without any probabilities, exactly `num_tokens`."""
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


def facts(bench: Bench) -> dict[str, Any]:
    """Versions, processor, threads and number format."""
    return {
        "checkpoint": bench.checkpoint.info.name,
        "dtype": bench.dtype,
        "cpu": cpu_name(),
        "threads": bench.amounts.threads,
        **{package: version(package) for package in ("torch", "transformers", "numba")},
    }


def cpu_name(path: Path = Path("/proc/cpuinfo")) -> str:
    """The processor as Linux names it, "unknown" elsewhere."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown")
