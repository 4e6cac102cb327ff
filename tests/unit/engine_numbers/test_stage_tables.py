"""Stage tables over four tokens, worked by hand: every number of a token's account, stage by stage."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.unit.engine_numbers.rows import entries, row
from tests.unit.engine_numbers.stage_tables import TABLES, L, Table, Weights
from workers.engine.ledger import LedgerEntry
from workers.engine.oracle import Place, processed_logprobs

every_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)


def logs(weights: Weights) -> list[float | None]:
    """ln of the probabilities that the weights stand for; None for 0."""
    total = sum(weights)
    return [math.log(Fraction(w) / total) if w else None for w in weights]


def entropy(weights: Weights) -> float:
    return -sum(math.exp(p) * p for p in logs(weights) if p is not None)


def account(table: Table) -> LedgerEntry:
    logits = torch.tensor([[math.log(w) for w in table.before]], dtype=torch.float32)
    return entries(logits, [row(table.settings, prompt=[*table.prompt], output=[*table.output], end=table.end)])[0]


@every_table
def test_a_table_worked_by_hand(table: Table) -> None:
    entry = account(table)
    by_id = sorted(entry.candidates, key=lambda c: c.token_id)
    assert [c.token_id for c in by_id] == [0, 1, 2, 3]
    for got, raw, processed in zip(by_id, logs(table.before), logs(table.after), strict=True):
        assert got.raw_logprob == pytest.approx(raw, abs=1e-6)
        assert got.logprob == (None if processed is None else pytest.approx(processed, abs=1e-6))
    assert tuple(c.removed_by for c in by_id) == table.removed_by
    assert [c.penalty for c in by_id] == pytest.approx([n * L for n in table.penalty], abs=1e-6)
    assert list(entry.kept.items()) == list(table.kept.items())  # in the order in which the stages ran
    assert entry.removed_mass == pytest.approx({k: float(v) for k, v in table.removed_mass.items()}, abs=1e-6)
    assert entry.entropy == pytest.approx(entropy(table.before), abs=1e-6)
    assert entry.entropy_processed == pytest.approx(entropy(table.after), abs=1e-6)


@every_table
def test_the_pick_is_one_of_the_hand_result_and_its_ranks_are(table: Table) -> None:
    entry = account(table)
    assert table.after[entry.token_id] > 0
    assert entry.rank == 1 + sum(w > table.before[entry.token_id] for w in table.before)
    assert entry.rank_processed == 1 + sum(w > table.after[entry.token_id] for w in table.after)
    if table.settings.get("temperature") == 0:
        assert entry.token_id == table.after.index(max(table.after))


@every_table
def test_the_oracle_agrees_with_the_hand(table: Table) -> None:
    """What the other proofs compare the engine with is itself compared with numbers worked by hand."""
    one = row(table.settings)
    place = Place(one.settings, [*table.prompt], [*table.output], one.banned_ids, table.end)
    logits = np.array([math.log(w) for w in table.before], dtype=np.float32)
    expected = [-math.inf if p is None else p for p in logs(table.after)]
    assert processed_logprobs(logits, place).tolist() == pytest.approx(expected, abs=1e-6)


def test_the_tables_reach_every_control_of_these_stages() -> None:
    used = {name for table in TABLES for name in table.settings}
    penalties = {"logit_bias", "banned", "repetition_penalty", "repetition_scope", "presence_penalty"}
    penalties |= {"frequency_penalty", "presence_frequency_scope"}
    others = {"no_repeat_ngram_size", "min_tokens", "temperature", "top_k", "top_p", "min_p", "typical_p", "order"}
    assert used == penalties | others
    removing = {stage for table in TABLES for stage, mass in table.removed_mass.items() if mass}
    assert removing == {"bias", "no_repeat_ngram", "min_tokens", "top_k", "top_p", "min_p", "typical"}
