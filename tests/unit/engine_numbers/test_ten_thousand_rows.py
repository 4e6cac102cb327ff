"""Ten thousand random rows, in batches whose rows all have settings of their own: the kept sets are transformers'.

The reference runs transformers' processors one row at a time, in the row's order, with the two rules in which this
product differs, both documented: where top_p's border falls between equals it keeps as many as transformers, those with
the lowest ids; and a stage that would leave nothing keeps the best token.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from models.sampling import DEFAULT_ORDER, Scope, Stage
from tests.unit.engine_numbers.rows import row
from workers.engine.logits.pipeline import Row, process

NUM_ROWS: Final = 10_000
BATCH: Final = 40
SIZES: Final = (1, 2, 5, 40, 300, 2000)
NONE: Final = -torch.inf

Random = np.random.Generator
Chain = tuple[list[str], list[str]]


CONTROLS: Final[dict[str, Callable[[Random], Any]]] = {
    "repetition_penalty": lambda random: float(random.uniform(0.4, 2.5)),
    "no_repeat_ngram_size": lambda random: int(random.integers(1, 4)),
    "temperature": lambda random: float(random.choice([0.2, 0.5, 0.9, 1.5, 4])),
    "top_k": lambda random: int(random.choice([1, 2, 3, 20, 50, 1000, 10**7])),
    "top_p": lambda random: float(random.choice([1e-6, 0.1, 0.5, 0.75, 0.9, 0.999, random.uniform(0.01, 1)])),
    "min_p": lambda random: float(random.choice([1e-9, 0.02, 0.25, 0.5, 1, random.uniform(0, 1)])),
    "typical_p": lambda random: float(random.choice([1e-6, 0.2, 0.5, 0.9, 0.999, random.uniform(0.01, 1)])),
}
LOGITS: Final[dict[str, Callable[[Random, int], Any]]] = {
    "ordinary": lambda random, size: random.normal(0, 3, size),
    "flat": lambda random, size: random.normal(0, 0.01, size),
    "ties": lambda random, size: random.integers(-3, 4, size) / 2,
    "all equal": lambda random, size: np.full(size, random.normal()),
    "sharp": lambda random, size: random.normal(0, 200, size),
    "huge": lambda random, size: random.normal(0, 1, size) * 1e35,
    "denormal": lambda random, size: random.normal(0, 1, size) * 1e-40,
    "signed zeros": lambda random, size: np.where(random.random(size) < 0.5, -0.0, 0.0),
    "mostly impossible": lambda random, size: np.where(random.random(size) < 0.8, -np.inf, random.normal(0, 2, size)),
}
# stage -> its control, and the processor for a value of it and the number of prompt tokens that it leaves out
PROCESSORS: Final[dict[Stage, tuple[str, Callable[[Any, int], Any]]]] = {
    Stage.REPETITION: ("repetition_penalty", RepetitionPenaltyLogitsProcessor),
    Stage.NO_REPEAT_NGRAM: ("no_repeat_ngram_size", lambda value, _: NoRepeatNGramLogitsProcessor(value)),
    Stage.TEMPERATURE: ("temperature", lambda value, _: TemperatureLogitsWarper(value)),
    Stage.TOP_K: ("top_k", lambda value, _: TopKLogitsWarper(value)),
    Stage.MIN_P: ("min_p", lambda value, _: MinPLogitsWarper(value)),
    Stage.TYPICAL: ("typical_p", lambda value, _: TypicalLogitsWarper(value)),
}


def test_kept_sets_of_ten_thousand_rows_are_those_of_transformers() -> None:
    random = np.random.default_rng(20_260_101)
    num_rows, num_choices = 0, 0
    for batch in range(NUM_ROWS // BATCH):
        size = SIZES[batch % len(SIZES)]
        chains = [draw_chain(random) for _ in range(6)]  # so that rows of one chain go through it together
        rows = [draw_row(random, size, chains[random.integers(len(chains))]) for _ in range(BATCH)]
        logits = torch.from_numpy(np.stack([draw_logits(random, size) for _ in range(BATCH)]))
        processed = process(logits, rows)
        for index, one in enumerate(rows):
            expected, has_chosen = reference(logits[index : index + 1], one)
            assert torch.equal(processed.final.logits[index : index + 1], expected), (size, one, logits[index])
            num_choices += has_chosen
            num_rows += 1
    assert num_rows == NUM_ROWS
    assert 100 < num_choices < NUM_ROWS / 10  # the rule for equals was needed, and was not the whole of it


def draw_chain(random: Random) -> Chain:
    """Some of the controls, in the default order or another one."""
    names = [name for name in CONTROLS if random.random() < 0.4]
    order = random.permutation(list(DEFAULT_ORDER)) if random.random() < 0.5 else DEFAULT_ORDER
    return names, [str(stage) for stage in order]


def draw_row(random: Random, size: int, chain: Chain) -> Row:
    """A chain with values, and a history, of one row."""
    names, order = chain
    values = {name: CONTROLS[name](random) for name in names}
    scope = str(random.choice(list(Scope)))
    history = random.integers(0, size, int(random.integers(2, 12))).tolist()
    cut = int(random.integers(1, len(history)))
    return row(values | {"repetition_scope": scope, "order": order}, prompt=history[:cut], output=history[cut:])


def draw_logits(random: Random, size: int) -> np.ndarray:
    kind = str(random.choice(list(LOGITS), p=[0.4] + [0.6 / (len(LOGITS) - 1)] * (len(LOGITS) - 1)))
    logits = np.asarray(LOGITS[kind](random, size), dtype=np.float32)
    if not np.isfinite(logits).any():
        logits[0] = 0
    return logits


def reference(logits: Tensor, one: Row) -> tuple[Tensor, bool]:
    """Scores (1, vocab) after the row's controls; whether top_p chose otherwise among equals than transformers."""
    ids = torch.tensor([[*one.prompt_ids, *one.output_ids]])
    num_ignored = len(one.prompt_ids) if one.settings.repetition_scope == Scope.OUTPUT else 0
    values = one.settings.changed()
    scores, has_chosen = logits.clone(), False
    for stage in one.settings.order:
        before = scores.clone()
        if stage is Stage.TOP_P and "top_p" in values:
            scores, is_choice = nucleus(before, values["top_p"])
            has_chosen |= is_choice
        elif stage in PROCESSORS and PROCESSORS[stage][0] in values:
            name, build = PROCESSORS[stage]
            scores = build(values[name], num_ignored)(ids, scores)
        if bool((scores == NONE).all()):
            scores = torch.full_like(before, NONE)
            scores[0, before.argmax()] = before.max()
    return scores, has_chosen


def nucleus(scores: Tensor, top_p: float) -> tuple[Tensor, bool]:
    """transformers' top_p with this product's choice among equals, and whether that made a difference."""
    theirs = TopPLogitsWarper(top_p)(None, scores.clone())
    num_kept = int((theirs > NONE).sum())
    best_first = torch.sort(scores, descending=True, stable=True).indices[0]  # among equals the lowest id
    mine = torch.full_like(scores, NONE)
    mine[0, best_first[:num_kept]] = scores[0, best_first[:num_kept]]
    assert torch.equal(mine.sort().values, theirs.sort().values), "the border lies elsewhere than between equals"
    return mine, not torch.equal(mine, theirs)
