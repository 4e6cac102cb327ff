"""The account of a pick: shown masses sum to 1, ranks, entropies, candidates, and what JSON can hold."""

import dataclasses
import json
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.sampling import Settings
from tests.unit.engine_numbers.rows import entries, logits_of, row
from workers.engine.ledger import LedgerCandidate, LedgerEntry
from workers.engine.noise import gumbel_numpy

P = (0.4, 0.25, 0.15, 0.1, 0.06, 0.04)


def candidate(entry: LedgerEntry, token_id: int) -> LedgerCandidate:
    (found,) = [c for c in entry.candidates if c.token_id == token_id]
    return found


def masses(entry: LedgerEntry) -> tuple[float, float]:
    raw = sum(math.exp(c.raw_logprob) for c in entry.candidates if c.raw_logprob is not None)
    processed = sum(math.exp(c.logprob) for c in entry.candidates if c.logprob is not None)
    return raw + entry.others.raw, processed + entry.others.processed


def test_an_entry_worked_by_hand() -> None:
    values = {"seed": 3, "banned": [0], "logit_bias": {"4": math.log(2)}, "top_k": 3, "alternatives": 2}
    (entry,) = entries(logits_of(*P), [row(values)], [7])
    # After the bias 0.25 0.15 0.1 0.12 0.04 are left; the three best are 1, 2 and 4: 0.52 together.
    assert entry.kept == {"bias": 5, "top_k": 3}
    assert entry.removed_mass == {"bias": 0.4, "top_k": pytest.approx(0.14)}
    shown = {c.token_id for c in entry.candidates}
    assert shown == {0, 1, 2} | {entry.token_id}
    assert [c.token_id for c in entry.candidates] == sorted(shown)  # by raw probability, which falls with the id
    assert candidate(entry, 0) == LedgerCandidate(
        0, round(math.log(0.4), 6), None, "bias", 0.0, candidate(entry, 0).noise
    )
    assert candidate(entry, 1).logprob == round(math.log(0.25 / 0.52), 6)
    assert candidate(entry, 1).raw_logprob == round(math.log(0.25), 6)
    rest = 1 - sum(P[i] for i in shown)
    assert entry.others.raw == pytest.approx(rest, abs=1e-6)
    assert entry.entropy == pytest.approx(-sum(p * math.log(p) for p in P), abs=1e-6)
    left = [0.25 / 0.52, 0.15 / 0.52, 0.12 / 0.52]
    assert entry.entropy_processed == pytest.approx(-sum(p * math.log(p) for p in left), abs=1e-6)
    noise = gumbel_numpy(3, 7, np.arange(6)).round(6).tolist()
    assert [c.noise for c in entry.candidates] == [noise[c.token_id] for c in entry.candidates]


def test_the_penalty_of_a_candidate() -> None:
    values = {"repetition_penalty": 2, "presence_penalty": 0.5, "logit_bias": {"1": 0.25}, "temperature": 0.5}
    (entry,) = entries(torch.tensor([[3.0, 2.0, -1.0]]), [row(values, prompt=[2], output=[0])])
    assert [candidate(entry, i).penalty for i in range(3)] == [-2.0, 0.25, -1.0]


def test_the_raw_number_is_the_same_under_every_setting() -> None:
    logits = torch.randn(1, 200, generator=torch.Generator().manual_seed(1)) * 3
    columns: list[dict[str, Any]] = [
        {},
        {"temperature": 0.1},
        {"temperature": 2},
        {"top_p": 0.1},
        {"repetition_penalty": 1.5},
    ]
    best = int(logits.argmax())
    results = [entries(logits, [row(values, prompt=[best])])[0] for values in columns]
    reference = round(float(logits.double().log_softmax(-1)[0, best]), 6)
    assert [candidate(entry, best).raw_logprob for entry in results] == [reference] * len(columns)
    assert len({candidate(entry, best).logprob for entry in results}) == len(columns)
    assert len({entry.entropy for entry in results}) == 1


def test_ranks_are_shared_by_equals() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
    for chosen, rank in [(0, 4), (1, 1), (2, 1), (3, 3)]:
        values = {"banned": [i for i in range(4) if i != chosen]}
        (entry,) = entries(logits, [row(values)])
        assert (entry.token_id, entry.rank, entry.rank_processed) == (chosen, rank, 1)


def test_equals_at_the_end_of_the_list_are_shown_by_lowest_id() -> None:
    (entry,) = entries(torch.zeros(1, 1000), [row({"temperature": 0, "alternatives": 5})])
    assert [c.token_id for c in entry.candidates] == [0, 1, 2, 3, 4]
    (entry,) = entries(
        torch.cat([torch.full((1, 500), -1.0), torch.zeros(1, 500)], 1), [row({"top_k": 1, "alternatives": 3})]
    )
    assert {500, 501, 502} <= {c.token_id for c in entry.candidates}


def test_a_row_shows_what_it_asked_for_whatever_its_neighbours_ask() -> None:
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(2))
    rows = [row({"alternatives": n, "top_k": 60}) for n in (0, 1, 7, 100)]
    together = entries(logits, rows)
    for i, entry in enumerate(together):
        assert entry == entries(logits[i : i + 1], [rows[i]])[0]
    assert [c.token_id for c in together[0].candidates] == [together[0].token_id]


@pytest.mark.parametrize(
    "logits",
    [
        torch.zeros(300),
        torch.tensor([0.0, -0.0] * 150),
        torch.arange(300) // 7 * -0.5,
        torch.tensor([-math.inf, 1.0, -math.inf, 1.0] * 75),
        torch.tensor([-math.inf] * 299 + [2.0]),
    ],
    ids=["all equal", "signed zeros", "steps", "half impossible", "one possible"],
)
def test_equals_are_listed_by_id_whatever_the_neighbours_ask(logits: torch.Tensor) -> None:
    rows = [row({"alternatives": n, "top_p": p, "seed": n}) for n, p in [(0, 1), (3, 0.5), (40, 0.9), (100, 1)]]
    together = entries(logits.expand(4, -1), rows)
    by_rank = sorted(range(300), key=lambda i: (-float(logits[i]), i))
    for one, entry in zip(rows, together, strict=True):
        assert entry == entries(logits[None], [one])[0]
        shown = {c.token_id for c in entry.candidates} - {entry.token_id}
        assert shown <= set(by_rank[: one.settings.alternatives])


def test_more_alternatives_than_tokens() -> None:
    (entry,) = entries(logits_of(*P), [row({"alternatives": 100})])
    assert [c.token_id for c in entry.candidates] == list(range(6))
    assert entry.others.raw == entry.others.processed == 0.0


def test_minus_infinity_is_none_and_the_json_is_strict() -> None:
    logits = torch.full((1, 8), -math.inf)
    logits[0, 3] = 1.0
    (entry,) = entries(logits, [row({"top_k": 1, "alternatives": 5})])
    others = [c for c in entry.candidates if c.token_id != 3]
    assert others
    assert all((c.raw_logprob, c.logprob, c.removed_by) == (None, None, None) for c in others)
    json.dumps(dataclasses.asdict(entry), allow_nan=False)
    assert masses(entry) == pytest.approx((1, 1), abs=1e-6)


def test_a_neutral_row_shows_the_same_number_twice() -> None:
    logits = torch.randn(1, 400, generator=torch.Generator().manual_seed(3)) * 2
    (entry,) = entries(logits, [row()])
    assert all(c.raw_logprob == c.logprob and c.removed_by is None and c.penalty == 0 for c in entry.candidates)
    assert (entry.entropy, entry.rank, entry.kept) == (entry.entropy_processed, entry.rank_processed, {})
    assert entry.others.raw == entry.others.processed


SETTINGS = st.fixed_dictionaries(
    {"seed": st.integers(0, 2**64 - 1), "alternatives": st.integers(0, 30)},
    optional={
        "temperature": st.floats(0, 5),
        "top_k": st.integers(0, 30),
        "top_p": st.floats(0.01, 1),
        "min_p": st.floats(0, 1),
        "typical_p": st.floats(0.01, 1),
        "repetition_penalty": st.floats(0.1, 5),
        "frequency_penalty": st.floats(-2, 2),
        "no_repeat_ngram_size": st.integers(0, 3),
        "min_tokens": st.integers(0, 9),
        "banned": st.lists(st.integers(0, 39), max_size=4, unique=True),
    },
)


@settings(max_examples=300, deadline=None)
@given(SETTINGS, st.integers(0, 10**6), st.floats(0.01, 30), st.lists(st.integers(0, 39), min_size=1, max_size=9))
def test_laws_of_every_entry(values: dict[str, Any], seed: int, spread: float, history: list[int]) -> None:
    logits = torch.randn(1, 40, generator=torch.Generator().manual_seed(seed)) * spread
    (entry,) = entries(logits, [row(values, prompt=history, end=frozenset({0, 5}))], [len(history)])
    assert masses(entry) == pytest.approx((1, 1), abs=1e-6)
    as_json = json.dumps(dataclasses.asdict(entry), allow_nan=False)
    assert not re.search(r"-0\.0\b", as_json), "SQLite does not keep the sign of a zero"
    chosen = candidate(entry, entry.token_id)
    assert (chosen.raw_logprob, chosen.logprob, chosen.removed_by) == (entry.raw_logprob, entry.logprob, None)
    raw = [c.raw_logprob for c in entry.candidates if c.raw_logprob is not None]
    assert raw == sorted(raw, reverse=True)
    for c in entry.candidates:
        assert (c.logprob is None) == (c.removed_by is not None)
    assert list(entry.kept) == list(entry.removed_mass)
    assert list(entry.kept.values()) == sorted(entry.kept.values(), reverse=True)
    assert sum(entry.removed_mass.values()) <= 1 + 1e-6
    if not Settings.parse(values).is_greedy:  # the pick has the best score of all that are shown
        scores = {
            c.token_id: c.logprob + c.noise for c in entry.candidates if c.logprob is not None and c.noise is not None
        }
        assert scores[entry.token_id] >= max(scores.values()) - 2e-6
