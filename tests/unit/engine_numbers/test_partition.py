"""Every token of the vocabulary is kept or was removed by exactly one stage, and the account adds up stage by stage."""

import math
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.sampling import DEFAULT_ORDER
from tests.unit.engine_numbers.rows import row
from workers.engine.logits.pipeline import NOT_REMOVED, process

SIZE = 24
IDS = st.integers(0, SIZE - 1)
NUMBERS = st.one_of(
    st.integers(-3, 3).map(float),  # ties
    st.floats(-12, 12, width=32),
    st.sampled_from([-math.inf, -0.0, 1e-40, 3e38, -3e38]),
)
LOGITS = st.lists(NUMBERS, min_size=SIZE, max_size=SIZE).filter(lambda v: max(v) > -math.inf)
CONTROLS = st.fixed_dictionaries(
    {"order": st.permutations([stage.value for stage in DEFAULT_ORDER])},
    optional={
        "logit_bias": st.dictionaries(IDS.map(str), st.floats(-30, 30), max_size=4),
        "banned": st.lists(IDS, max_size=SIZE, unique=True),
        "repetition_penalty": st.floats(0.2, 4),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "no_repeat_ngram_size": st.integers(0, 3),
        "min_tokens": st.integers(0, 20),
        "temperature": st.sampled_from([0.0, 1e-30, 0.3, 1.0, 2.5, 100.0]),
        "top_k": st.integers(0, SIZE + 5),
        "top_p": st.floats(0, 1, exclude_min=True),
        "min_p": st.floats(0, 1),
        "typical_p": st.floats(0, 1, exclude_min=True),
    },
)


@settings(max_examples=250, deadline=None)
@given(LOGITS, CONTROLS, st.lists(IDS, min_size=1, max_size=10), st.frozensets(IDS, max_size=SIZE))
@example([0.0] * SIZE, {"banned": [*range(SIZE)], "order": [*DEFAULT_ORDER]}, [0], frozenset())
@example([0.0] * SIZE, {"min_tokens": 9, "top_p": 0.5, "order": [*DEFAULT_ORDER][::-1]}, [0], frozenset(range(SIZE)))
def test_kept_and_removed_partition_the_vocabulary(
    numbers: list[float], values: dict[str, Any], history: list[int], end: frozenset[int]
) -> None:
    logits = torch.tensor([numbers], dtype=torch.float32)
    cut = len(history) // 2
    processed = process(logits, [row(values, prompt=history[:cut], output=history[cut:], end=end)])
    raw = processed.raw_logprobs[0].exp()
    codes = processed.removed_by[0]
    is_possible = logits[0] > -torch.inf
    is_kept = processed.final.logits[0] > -torch.inf
    assert torch.equal(is_possible, is_kept | (codes != NOT_REMOVED))
    assert not (is_kept & (codes != NOT_REMOVED)).any()
    assert is_kept.any()
    assert float(processed.logprobs[0].exp().sum()) == pytest.approx(1, abs=1e-6)

    num_left, mass_left = int(is_possible.sum()), 1.0
    for stage, num_kept in processed.kept[0].items():  # in the order in which they ran
        is_removed = codes == [s.value for s in DEFAULT_ORDER].index(stage)
        num_left -= int(is_removed.sum())
        mass = float(raw[is_removed].sum())
        mass_left -= mass
        assert num_kept == num_left
        assert processed.removed_mass[0][stage] == pytest.approx(mass, abs=1e-6)
    assert num_left == int(is_kept.sum())
    assert mass_left == pytest.approx(float(raw[is_kept].sum()), abs=1e-6)
    assert {DEFAULT_ORDER[code].value for code in codes[codes != NOT_REMOVED]} <= set(processed.kept[0])
