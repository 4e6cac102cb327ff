"""Every stage on distributions over four tokens, worked by hand, and the laws that hold for all of them."""

import itertools
import math
from typing import Any

import pytest
import torch

from models.sampling import DEFAULT_ORDER, Stage
from tests.unit.engine_numbers.rows import entries, kept_ids, logits_of, probabilities, row
from workers.engine.logits.pipeline import active_stages, process

P = (0.5, 0.25, 0.15, 0.1)


NAN, INF = math.nan, math.inf


def processed_probabilities(settings: dict[str, Any], *, p: tuple[float, ...] = P, **kwargs: Any) -> list[float]:
    return probabilities(process(logits_of(*p), [row(settings, **kwargs)]))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # e^b times the probability, over the new sum: 0.5 + 0.25 + 0.15 * 2 + 0.1 = 1.15
        ({"logit_bias": {"2": math.log(2)}}, [0.5 / 1.15, 0.25 / 1.15, 0.3 / 1.15, 0.1 / 1.15]),
        ({"banned": [0]}, [0, 0.5, 0.3, 0.2]),
        ({"temperature": 0.5}, [0.25 / 0.345, 0.0625 / 0.345, 0.0225 / 0.345, 0.01 / 0.345]),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0, 0]),
        ({"top_k": 4}, list(P)),
        ({"top_k": 9999999}, list(P)),
        ({"top_p": 0.4}, [1, 0, 0, 0]),
        ({"top_p": 0.6}, [2 / 3, 1 / 3, 0, 0]),  # 0.5 < 0.6: the token that crosses stays
        ({"top_p": 0.85}, [5 / 9, 2.5 / 9, 1.5 / 9, 0]),
        ({"top_p": 0.95}, list(P)),
        ({"top_p": 1e-9}, [1, 0, 0, 0]),
        ({"min_p": 0.3}, [5 / 9, 2.5 / 9, 1.5 / 9, 0]),  # below 0.3 * 0.5 = 0.15 goes: 0.1 alone
        ({"min_p": 0.31}, [2 / 3, 1 / 3, 0, 0]),
        ({"min_p": 1}, [1, 0, 0, 0]),
        # H = 1.2080; |-log p - H| = 0.515, 0.178, 0.689, 1.095: nearest first 1, 0, 2, 3
        ({"typical_p": 0.2}, [0, 1, 0, 0]),
        ({"typical_p": 0.5}, [2 / 3, 1 / 3, 0, 0]),
        ({"typical_p": 0.8}, [5 / 9, 2.5 / 9, 1.5 / 9, 0]),
    ],
)
def test_stage_by_hand(settings: dict[str, Any], expected: list[float]) -> None:
    assert processed_probabilities(settings) == pytest.approx(expected, abs=1e-6)


def test_top_k_keeps_equals_of_the_kth() -> None:
    assert processed_probabilities({"top_k": 2}, p=(0.4, 0.25, 0.25, 0.1)) == pytest.approx(
        [0.4 / 0.9, 0.25 / 0.9, 0.25 / 0.9, 0]
    )


def test_top_p_keeps_the_lowest_ids_of_equals_at_its_border() -> None:
    processed = process(torch.zeros(1, 8), [row({"top_p": 0.5})])
    assert kept_ids(processed) == [0, 1, 2, 3]
    processed = process(logits_of(0.1, 0.2, 0.2, 0.1, 0.2, 0.2), [row({"top_p": 0.5})])
    assert kept_ids(processed) == [1, 2, 4]


LOGITS = torch.tensor([[2.0, -1.0, 0.0, 0.5]])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # z > 0 is divided, z < 0 is multiplied; ids 0 and 1 are in the prompt, 2 and 3 in the output
        ({"repetition_penalty": 2}, [1.0, -2.0, 0.0, 0.25]),
        ({"repetition_penalty": 2, "repetition_scope": "output"}, [2.0, -1.0, 0.0, 0.25]),
        ({"repetition_penalty": 0.5}, [4.0, -0.5, 0.0, 1.0]),
        # the output is 3 3 2: counts 1 of token 2 and 2 of token 3
        ({"presence_penalty": 0.5}, [2.0, -1.0, -0.5, 0.0]),
        ({"frequency_penalty": 0.25}, [2.0, -1.0, -0.25, 0.0]),
        ({"presence_penalty": 0.5, "frequency_penalty": 0.25}, [2.0, -1.0, -0.75, -0.5]),
        ({"presence_penalty": -0.5, "presence_frequency_scope": "all"}, [2.5, -0.5, 0.5, 1.0]),
        ({"frequency_penalty": 0.5, "presence_frequency_scope": "all"}, [1.0, -1.5, -0.5, -0.5]),
        # stages stack in order: -1 and 0.5 by repetition first, then the subtraction
        ({"repetition_penalty": 2, "presence_penalty": 1}, [1.0, -2.0, -1.0, -0.75]),
    ],
)
def test_penalty_by_hand(settings: dict[str, Any], expected: list[float]) -> None:
    processed = process(LOGITS, [row(settings, prompt=[0, 1, 0], output=[3, 3, 2])])
    assert processed.final.logits[0].tolist() == pytest.approx(expected)
    assert processed.penalty[0].tolist() == pytest.approx(
        [e - z for e, z in zip(expected, LOGITS[0].tolist(), strict=True)]
    )
    assert processed.kept == [{}]


def test_order_of_two_stages_changes_the_result() -> None:
    # By default the penalty comes first and moves token 0 out of the two best; afterwards it only makes it less likely.
    settings = {"top_k": 2, "repetition_penalty": 4}
    late = [*(s for s in DEFAULT_ORDER if s is not Stage.REPETITION), Stage.REPETITION]
    logits = torch.tensor([[2.0, 1.5, 1.0, 0.0]])
    assert kept_ids(process(logits, [row(settings, prompt=[0])])) == [1, 2]
    processed = process(logits, [row(settings | {"order": late}, prompt=[0])])
    assert kept_ids(processed) == [0, 1]
    assert processed.final.logits[0, :2].tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("size", "history", "expected"),
    [
        (1, [0, 2, 2], {0, 2}),
        (2, [0, 1, 0, 2, 0], {1, 2}),
        (2, [0, 1, 2], set()),
        (3, [0, 1, 2, 0, 1], {2}),
        (3, [0, 1], set()),
        (3, [1, 1, 1, 1], {1}),
        (9, [0, 1, 2], set()),
    ],
)
def test_no_repeat_ngram_by_hand(size: int, history: list[int], expected: set[int]) -> None:
    settings = {"no_repeat_ngram_size": size}
    for cut in range(len(history) + 1):
        processed = process(logits_of(*P), [row(settings, prompt=history[:cut], output=history[cut:])])
        assert set(range(4)) - set(kept_ids(processed)) == expected


def test_min_tokens_holds_end_tokens_back_until_they_may_come() -> None:
    ends = frozenset({0, 3})
    for num_generated, kept in [(0, [1, 2]), (1, [1, 2]), (2, [0, 1, 2, 3])]:
        processed = process(logits_of(*P), [row({"min_tokens": 2}, output=[1] * num_generated, end=ends)])
        assert kept_ids(processed) == kept


@pytest.mark.parametrize(
    ("settings", "stage"),
    [
        ({"banned": [0, 1, 2, 3]}, "bias"),
        ({"no_repeat_ngram_size": 1}, "no_repeat_ngram"),
        ({"min_tokens": 9}, "min_tokens"),
    ],
)
def test_the_stage_that_would_remove_the_last_token_keeps_the_best(settings: dict[str, Any], stage: str) -> None:
    logits = logits_of(0.2, 0.35, 0.35, 0.1)
    processed = process(logits, [row(settings, prompt=[0, 1, 2, 3], end=frozenset(range(4)))])
    assert kept_ids(processed) == [1]
    assert processed.kept[0][stage] == 1
    assert processed.removed_mass[0][stage] == pytest.approx(0.65)


def test_a_token_removed_before_is_no_candidate_for_being_kept() -> None:
    processed = process(logits_of(*P), [row({"banned": [0], "min_tokens": 5}, end=frozenset({1, 2, 3}))])
    assert kept_ids(processed) == [1]
    assert processed.kept == [{"bias": 3, "min_tokens": 1}]


def test_the_account_of_a_chain_of_stages() -> None:
    settings = {"banned": [0], "temperature": 0.5, "top_k": 2, "top_p": 0.5}
    processed = process(logits_of(*P), [row(settings)])
    assert processed.kept == [{"bias": 3, "top_k": 2, "top_p": 1}]
    assert processed.removed_mass[0] == pytest.approx({"bias": 0.5, "top_k": 0.1, "top_p": 0.15})
    names = [None if code < 0 else DEFAULT_ORDER[code].value for code in processed.removed_by[0].tolist()]
    assert names == ["bias", None, "top_p", "top_k"]
    assert probabilities(processed) == [0, 1, 0, 0]


def test_neutral_settings_give_the_raw_distribution_bit_for_bit() -> None:
    logits = torch.randn(3, 500, generator=torch.Generator().manual_seed(1)) * 4
    rows = [
        row(),
        row({"seed": 9, "alternatives": 3, "max_tokens": 1, "stop": ["x"]}),
        row({"order": list(reversed(DEFAULT_ORDER))}),
    ]
    processed = process(logits, rows)
    assert torch.equal(processed.logprobs, processed.raw_logprobs)
    assert torch.equal(processed.final.logits, logits)
    assert torch.allclose(processed.raw_logprobs, logits.double().log_softmax(-1), rtol=0, atol=2e-7)
    assert processed.kept == [{}, {}, {}]
    assert [active_stages(r) for r in rows] == [(), (), ()]


def test_max_tokens_has_no_influence() -> None:
    logits = torch.randn(2, 100, generator=torch.Generator().manual_seed(2))
    processed = process(logits[:1].expand(2, -1), [row({"top_p": 0.7, "max_tokens": n}) for n in (1, 1000)])
    assert torch.equal(processed.logprobs[0], processed.logprobs[1])


def test_at_temperature_zero_later_stages_are_inert() -> None:
    settings = {"temperature": 0, "repetition_penalty": 2, "top_k": 1, "top_p": 0.1, "min_p": 1, "typical_p": 0.1}
    r = row(settings, prompt=[0])
    assert active_stages(r) == (Stage.REPETITION,)
    processed = process(torch.tensor([[2.0, 1.5, 1.5, 0.0]]), [r])
    expected = torch.tensor([1.0, 1.5, 1.5, 0.0], dtype=torch.float64).log_softmax(-1)
    assert processed.logprobs[0].tolist() == pytest.approx(expected.tolist(), abs=1e-7)
    (entry,) = entries(torch.tensor([[2.0, 1.5, 1.5, 0.0]]), [r])
    assert entry.token_id == 1  # the lowest id on a tie
    assert entry.kept == {}
    assert entry.logprob == pytest.approx(float(expected[1]), abs=1e-6)
    assert all(c.noise is None for c in entry.candidates)


def test_at_temperature_zero_a_stage_moved_before_temperature_takes_part() -> None:
    order = [Stage.TOP_K, *(s for s in DEFAULT_ORDER if s is not Stage.TOP_K)]
    assert active_stages(row({"temperature": 0, "top_k": 3, "order": order})) == (Stage.TOP_K,)


def test_every_order_of_three_stages_runs_as_told() -> None:
    logits = logits_of(0.3, 0.3, 0.2, 0.1, 0.1)
    settings = {"temperature": 2, "top_p": 0.75, "min_p": 0.4}
    results = {}
    for first in itertools.permutations([Stage.TEMPERATURE, Stage.TOP_P, Stage.MIN_P]):
        order = [*first, *(s for s in DEFAULT_ORDER if s not in first)]
        results[first] = kept_ids(process(logits, [row(settings | {"order": order})]))
    # Flattened by T = 2 the five are 0.25 0.25 0.20 0.14 0.14, so top_p keeps four; before it, three.
    assert results[Stage.TEMPERATURE, Stage.TOP_P, Stage.MIN_P] == [0, 1, 2, 3]
    assert results[Stage.TOP_P, Stage.TEMPERATURE, Stage.MIN_P] == [0, 1, 2]
    # min_p 0.4 before T removes what is below 0.12.
    assert results[Stage.MIN_P, Stage.TEMPERATURE, Stage.TOP_P] == [0, 1, 2]


def test_the_raw_logits_are_never_changed() -> None:
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(3))
    before = logits.clone()
    settings = {"logit_bias": {"3": 2}, "banned": [4], "repetition_penalty": 2, "temperature": 0.5, "top_p": 0.5}
    entries(logits, [row(settings, prompt=[1, 2]), row()])
    assert torch.equal(logits, before)


def test_a_neutral_batch_is_not_copied() -> None:
    processed = process(torch.zeros(2, 5), [row(), row({"seed": 3})])
    assert processed.final is processed.raw


def test_a_token_is_removed_once_by_the_first_stage_that_does() -> None:
    settings = {"banned": [0], "no_repeat_ngram_size": 1, "min_tokens": 5}
    processed = process(logits_of(*P), [row(settings, prompt=[0, 1], end=frozenset({0, 1, 3}))])
    names = [None if code < 0 else DEFAULT_ORDER[code].value for code in processed.removed_by[0].tolist()]
    assert names == ["bias", "no_repeat_ngram", None, "min_tokens"]
    assert processed.kept == [{"bias": 3, "no_repeat_ngram": 2, "min_tokens": 1}]
    expected = {"bias": 0.5, "no_repeat_ngram": 0.25, "min_tokens": 0.1}
    assert processed.removed_mass[0] == pytest.approx(expected, abs=1e-7)
