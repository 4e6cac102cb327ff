"""The places that count against a candidate: worked by hand, and by counting."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.db.ledger import token_event, token_row
from models.db.runs import Token
from models.events import MAX_CAUSES, Event
from models.sampling import Scope, Settings
from tests.fakes.events import token
from tests.unit.engine_numbers.rows import entries, row

PROMPT, OUTPUT = [0, 1, 0], [2, 0, 1]  # places 0 1 2, then 3 4 5
FLAT = torch.zeros(1, 6)
CASES: list[tuple[dict[str, Any], dict[int, tuple[int, ...]]]] = [
    ({}, {}),
    ({"logit_bias": {"0": 2.0}}, {}),
    ({"repetition_penalty": 2}, {0: (0, 2, 4), 1: (1, 5), 2: (3,)}),
    ({"repetition_penalty": 2, "repetition_scope": "output"}, {0: (4,), 1: (5,), 2: (3,)}),
    ({"presence_penalty": 1}, {0: (4,), 1: (5,), 2: (3,)}),
    ({"frequency_penalty": 1, "presence_frequency_scope": "all"}, {0: (0, 2, 4), 1: (1, 5), 2: (3,)}),
    ({"presence_penalty": 1, "repetition_penalty": 2}, {0: (0, 2, 4), 1: (1, 5), 2: (3,)}),
    # The text ends with 1; after the 1 at place 1 stood a 0 at place 2.
    ({"no_repeat_ngram_size": 2}, {0: (2,)}),
    ({"no_repeat_ngram_size": 1}, {0: (0, 2, 4), 1: (1, 5), 2: (3,)}),
    ({"no_repeat_ngram_size": 2, "presence_penalty": 1}, {0: (2,), 1: (5,), 2: (3,)}),
    # At temperature 0 the stages after it are not run, so nothing counts against anything.
    ({"temperature": 0, "presence_penalty": 1, "order": "temperature first"}, {}),
]


@pytest.mark.parametrize(("values", "expected"), CASES, ids=[str(values) for values, _ in CASES])
def test_causes_worked_by_hand(values: dict[str, Any], expected: dict[int, tuple[int, ...]]) -> None:
    if "order" in values:
        order = Settings().as_dict()["order"]
        values = {**values, "order": ["temperature", *(stage for stage in order if stage != "temperature")]}
    (entry,) = entries(FLAT, [row(values, prompt=PROMPT, output=OUTPUT)])
    assert {c.token_id: c.causes.latest for c in entry.candidates if c.causes.num} == expected
    assert all(c.causes.num == len(c.causes.latest) for c in entry.candidates)


def test_of_many_causes_the_latest_are_named_and_all_are_counted() -> None:
    (entry,) = entries(FLAT, [row({"frequency_penalty": 0.5}, output=[3] * 100)])
    (found,) = [c for c in entry.candidates if c.causes.num]
    assert (found.token_id, found.penalty, found.causes.num) == (3, -50.0, 100)
    assert found.causes.latest == tuple(range(100 - MAX_CAUSES, 100))


@settings(max_examples=100, deadline=None)
@given(
    history=st.lists(st.integers(0, 5), max_size=30),
    num_prompt=st.integers(0, 30),
    scope=st.sampled_from(list(Scope)),
    frequency=st.floats(0.1, 2),
)
def test_a_frequency_penalty_is_its_rate_times_its_causes(
    history: list[int], num_prompt: int, scope: Scope, frequency: float
) -> None:
    prompt, output = history[:num_prompt], history[num_prompt:]
    values = {"frequency_penalty": frequency, "presence_frequency_scope": scope.value}
    (entry,) = entries(FLAT, [row(values, prompt=prompt, output=output)])
    for c in entry.candidates:
        assert c.penalty == pytest.approx(-frequency * c.causes.num, abs=1e-5)
        assert all(history[place] == c.token_id for place in c.causes.latest)
        assert list(c.causes.latest) == sorted(set(c.causes.latest))


def test_causes_come_back_from_the_table() -> None:
    first, second = token(0).candidates
    changed = type(first)(
        first.token_id, first.piece, first.raw_logprob, first.logprob, first.removed_by, -1.0, first.noise, 9, (3, 4, 7)
    )
    event = Event("run", 1, 2, token(0, candidates=(changed, second)))
    assert token_event(Token(**token_row(event))) == event
    assert Event.decode(event.encode()) == event
