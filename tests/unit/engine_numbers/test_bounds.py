"""Controls at their bounds over logits at the limits of float32: every row stays a distribution, and is as alone."""

import dataclasses
import json
import math
from typing import Any, Final

import numpy as np
import pytest
import torch

from models.sampling import DEFAULT_ORDER, MAX_COUNT
from tests.unit.engine_numbers.rows import entries, row
from workers.engine.ledger import LedgerEntry, write
from workers.engine.logits.pipeline import Processed, Row, process
from workers.engine.sampler import pick, pick_rows

MAX: Final = float(np.finfo(np.float32).max)
ALMOST_ONE: Final = 1 - 2**-53
Random = np.random.Generator

BOUNDS: Final[dict[str, list[Any]]] = {
    "temperature": [0, 5e-324, 1e-45, 1e-38, 1e-10, 100],
    "top_k": [1, 2, MAX_COUNT],
    "top_p": [5e-324, 1e-8, 0.5, ALMOST_ONE],
    "min_p": [5e-324, 1e-8, 0.5, 1],
    "typical_p": [5e-324, 0.5, ALMOST_ONE],
    "repetition_penalty": [5e-324, 1e-38, 1e38, 1.7e308],
    "presence_penalty": [-2, 2],
    "frequency_penalty": [-2, 2],
    "no_repeat_ngram_size": [1, 2, MAX_COUNT],
    "min_tokens": [1, MAX_COUNT],
    "alternatives": [0, 1, 100],
}
LOGITS: Final = {
    "ordinary": lambda random, size: random.normal(0, 3, size),
    "the limits": lambda random, size: random.choice([MAX, -MAX, 0, 1], size),
    "one limit": lambda random, size: np.full(size, random.choice([MAX, -MAX])),
    "half at the limit": lambda random, size: np.where(random.random(size) < 0.5, -MAX, random.normal(0, 2, size)),
    "denormal": lambda random, size: random.normal(0, 1, size) * 1e-44,
    "signed zeros": lambda random, size: random.choice([0.0, -0.0], size),
    "far below": lambda random, size: random.normal(-1e6, 1, size),
    "mostly impossible": lambda random, size: np.where(random.random(size) < 0.9, -np.inf, random.normal(0, 2, size)),
}


def draw_row(random: Random, size: int) -> Row:
    values = {
        name: random.choice(np.array(bounds, dtype=object)) for name, bounds in BOUNDS.items() if random.random() < 0.3
    }
    if random.random() < 0.3:
        ids = random.integers(0, size, 3).tolist()
        values["logit_bias"] = {str(i): float(random.choice([1e308, -1e308, 1e-300])) for i in ids}
        values["banned"] = random.integers(0, size, 2).tolist()
    if random.random() < 0.5:
        values["order"] = [str(stage) for stage in random.permutation(list(DEFAULT_ORDER))]
    history = random.integers(0, size, 9).tolist()
    end = frozenset(random.integers(0, size, 2).tolist())
    return row(values | {"seed": int(random.integers(2**63))}, prompt=history[:4], output=history[4:], end=end)


@pytest.mark.parametrize("kind", LOGITS)
def test_a_row_at_the_bounds_is_a_distribution_and_as_alone(kind: str) -> None:
    random = np.random.default_rng(sum(kind.encode()))
    for size in [1, 2, 3, 7, 64, 300, 3000] * 2:
        rows = [draw_row(random, size) for _ in range(4)]
        numbers = np.stack([LOGITS[kind](random, size) for _ in rows]).astype(np.float32)
        numbers[:, random.integers(size)] = 0  # something is possible
        logits = torch.from_numpy(numbers)
        processed = process(logits, rows)
        picks = pick(processed, rows, [3, 5, 7, 9])
        assert picks.token_ids.tolist() == pick_rows(processed, rows, [3, 5, 7, 9]).tolist()
        for index, entry in enumerate(write(processed, picks, rows)):
            check(processed, index, entry)
            assert entry == entries(logits[index : index + 1], [rows[index]], [picks.positions[index]])[0]


def check(processed: Processed, index: int, entry: LedgerEntry) -> None:
    final = processed.final.logits[index]
    assert not final.isnan().any()
    assert final.max() < torch.inf
    assert torch.isfinite(processed.penalty[index]).all()
    assert final[entry.token_id] > -torch.inf
    assert float(processed.logprobs[index].exp().sum()) == pytest.approx(1, abs=1e-6)
    json.dumps(dataclasses.asdict(entry), allow_nan=False)
    raw = math.fsum(math.exp(c.raw_logprob) for c in entry.candidates if c.raw_logprob is not None)
    mass = math.fsum(math.exp(c.logprob) for c in entry.candidates if c.logprob is not None)
    assert (raw + entry.others.raw, mass + entry.others.processed) == pytest.approx((1, 1), abs=2e-6)
    assert all(mass >= 0 for mass in entry.removed_mass.values())
