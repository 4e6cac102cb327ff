"""Kept sets and processed log-probabilities equal those of transformers' processors and warpers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from models.sampling import DEFAULT_ORDER, Stage
from tests.unit.engine_numbers.rows import row
from workers.engine.logits.pipeline import Processed, process

ENDS = frozenset({1, 3})


def theirs(logits: Tensor, values: dict[str, Any], prompt: list[int], output: list[int]) -> Tensor:
    """transformers' processed scores for one row, the processors in the order of the settings."""
    ignored = len(prompt) if values.get("repetition_scope") == "output" else 0
    make: dict[Stage, tuple[str, Callable[[Any], list[Any]]]] = {
        Stage.BIAS: (
            "logit_bias",
            lambda v: [SequenceBiasLogitsProcessor([[[int(i)], float(b)] for i, b in v.items()])],
        ),
        Stage.REPETITION: ("repetition_penalty", lambda v: [RepetitionPenaltyLogitsProcessor(v, ignored)]),
        Stage.NO_REPEAT_NGRAM: ("no_repeat_ngram_size", lambda v: [NoRepeatNGramLogitsProcessor(v)]),
        Stage.MIN_TOKENS: ("min_tokens", lambda v: [MinNewTokensLengthLogitsProcessor(len(prompt), v, list(ENDS))]),
        Stage.TEMPERATURE: ("temperature", lambda v: [TemperatureLogitsWarper(v)]),
        Stage.TOP_K: ("top_k", lambda v: [TopKLogitsWarper(v)]),
        Stage.TOP_P: ("top_p", lambda v: [TopPLogitsWarper(v)]),
        Stage.MIN_P: ("min_p", lambda v: [MinPLogitsWarper(v)]),
        Stage.TYPICAL: ("typical_p", lambda v: [TypicalLogitsWarper(v)]),
    }
    processors = LogitsProcessorList()
    for stage in values.get("order", DEFAULT_ORDER):
        if stage in make and make[stage][0] in values:
            name, build = make[stage]
            processors.extend(build(values[name]))
        if stage is Stage.BIAS and "banned" in values:
            processors.append(NoBadWordsLogitsProcessor([[i] for i in values["banned"]]))
    ids = torch.tensor([prompt + output])
    return processors(ids, logits.clone())  # type: ignore[no-any-return]


def ours(logits: Tensor, values: dict[str, Any], prompt: list[int], output: list[int]) -> Processed:
    return process(logits, [row(values, prompt=prompt, output=output, end=ENDS)])


def assert_equal(logits: Tensor, values: dict[str, Any], prompt: list[int], output: list[int]) -> None:
    expected = theirs(logits, values, prompt, output)
    processed = ours(logits, values, prompt, output)
    assert torch.equal(processed.final.logits > -torch.inf, expected > -torch.inf), "kept sets differ"
    assert torch.equal(processed.final.logits, expected), "scores differ"
    reference = expected.double().log_softmax(-1)
    kept = expected > -torch.inf
    assert (processed.logprobs - reference)[kept].abs().max() < 1e-6


CONTROLS: dict[str, st.SearchStrategy[Any]] = {
    "logit_bias": st.dictionaries(st.integers(0, 15).map(str), st.floats(-5, 5), min_size=1, max_size=3),
    "repetition_penalty": st.floats(0.3, 3).filter(lambda r: r != 1),
    "repetition_scope": st.sampled_from(["all", "output"]),
    "no_repeat_ngram_size": st.integers(1, 4),
    "min_tokens": st.integers(1, 6),
    "temperature": st.floats(0.1, 5).filter(lambda t: t != 1),
    "top_k": st.integers(1, 20),
    "top_p": st.floats(0.01, 0.999),
    "min_p": st.floats(0.001, 1),
    "typical_p": st.floats(0.01, 0.999),
}
# Coarse values make ties and borders, fine ones make ordinary rows. top_p's own choice among equals is left out of
# the comparison by giving it distinct logits; see test_top_p_among_equals.
DISTINCT = st.lists(st.integers(-4000, 4000), min_size=16, max_size=16, unique=True).map(lambda v: [x / 500 for x in v])
COARSE = st.lists(st.integers(-4, 4), min_size=16, max_size=16).map(lambda v: [x / 2 for x in v])
TOKENS = st.lists(st.integers(0, 15), min_size=1, max_size=8)
ORDER = st.permutations(list(DEFAULT_ORDER))


def removes_all(logits: Tensor, values: dict[str, Any], prompt: list[int], output: list[int]) -> bool:
    """transformers may leave nothing or NaN where this product keeps the best token."""
    scores = theirs(logits, values, prompt, output)
    return bool((scores == -torch.inf).all() or scores.isnan().any())


@settings(max_examples=300, deadline=None)
@given(DISTINCT, st.fixed_dictionaries({}, optional=CONTROLS), ORDER, TOKENS, TOKENS)
def test_any_controls_in_any_order(
    values: list[float], controls: dict[str, Any], order: list[Stage], prompt: list[int], output: list[int]
) -> None:
    logits = torch.tensor([values], dtype=torch.float32)
    # A bias or a penalty can make two of the distinct logits equal just where top_p cuts; it acts alone below.
    chosen = controls | {"order": order}
    if "top_p" in chosen and {"repetition_penalty", "logit_bias"} & set(chosen):
        del chosen["top_p"]
    if not removes_all(logits, chosen, prompt, output):
        assert_equal(logits, chosen, prompt, output)


@settings(max_examples=300, deadline=None)
@given(COARSE, st.sampled_from(["top_k", "min_p", "typical_p"]), st.data())
def test_ties_at_the_border(values: list[float], name: str, data: st.DataObject) -> None:
    control = {name: data.draw(CONTROLS[name])}
    assert_equal(torch.tensor([values], dtype=torch.float32), control, [0], [0])


@settings(max_examples=300, deadline=None)
@given(COARSE, CONTROLS["top_p"])
def test_top_p_among_equals(values: list[float], top_p: float) -> None:
    """As many kept, of the same logits; among equals this product keeps the lowest ids, transformers any."""
    logits = torch.tensor([values], dtype=torch.float32)
    processed = ours(logits, {"top_p": top_p}, [], [])
    expected = theirs(logits, {"top_p": top_p}, [0], [])
    is_kept = processed.final.logits[0] > -torch.inf
    assert sorted(logits[0][is_kept].tolist()) == sorted(logits[0][expected[0] > -torch.inf].tolist())
    border = logits[0][is_kept].min()
    equals = torch.nonzero(logits[0] == border).flatten().tolist()
    assert [i for i in equals if is_kept[i]] == equals[: int(is_kept[equals].sum())]


SWEEP: list[dict[str, Any]] = [
    {"top_k": 50},
    {"top_p": 0.1},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"min_p": 0.05},
    {"typical_p": 0.2},
    {"typical_p": 0.95},
    {"temperature": 0.3, "top_p": 0.95},
    {"temperature": 1.7, "top_k": 200, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.9},
    {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_tokens": 50, "top_k": 40},
    {"logit_bias": {"7": 3, "8": -3}, "banned": [9, 10], "temperature": 0.8, "top_p": 0.8},
]


@pytest.mark.parametrize("values", SWEEP, ids=str)
def test_many_random_rows(values: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(11)
    for size, spread in [(64, 1.0), (512, 3.0), (512, 0.2), (5000, 2.0), (49152, 2.5), (50257, 4.0)]:
        for _ in range(40 if size < 10_000 else 4):
            logits = torch.randn(1, size, generator=generator) * spread
            history = torch.randint(0, size, (30,), generator=generator).tolist()
            assert_equal(logits, values, history[:20], history[20:])


def test_first_step_scores_of_both_scopes() -> None:
    logits = torch.tensor([[4.0, 3.9, -1.0, 0.0]])
    for scope, expected in [("all", [4.0 / 1.5, 3.9, -1.0, 0.0]), ("output", [4.0, 3.9, -1.0, 0.0])]:
        values = {"repetition_penalty": 1.5, "repetition_scope": scope}
        processed = ours(logits, values, [0, 0, 0], [])
        np.testing.assert_allclose(processed.final.logits[0].numpy(), expected, atol=1e-6)
        assert torch.equal(processed.final.logits, theirs(logits, values, [0, 0, 0], []))
