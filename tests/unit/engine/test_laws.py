"""Laws that hold for every token and every run of the engine, whatever the settings."""

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.events import TokenPicked
from models.sampling import DEFAULT_ORDER
from tests.fakes import checkpoints
from tests.fakes.any_settings import any_settings, any_stops
from tests.fakes.engine_runs import run
from tests.unit.engine.test_oracle import PROMPTS
from workers.engine import scheduler
from workers.engine.checkpoint import Checkpoint

VOCAB_SIZE = checkpoints.SMALL_VOCAB_SIZE
IDS = st.integers(0, VOCAB_SIZE - 1)
STAGES = st.fixed_dictionaries(
    {"order": st.permutations([stage.value for stage in DEFAULT_ORDER]), "seed": st.integers(0, 2**64 - 1)},
    optional={
        "logit_bias": st.dictionaries(IDS.map(str), st.floats(-9, 9), max_size=4),
        "banned": st.lists(IDS, max_size=VOCAB_SIZE, unique=True),
        "repetition_penalty": st.floats(0.3, 3),
        "frequency_penalty": st.floats(-2, 2),
        "no_repeat_ngram_size": st.integers(0, 3),
        "min_tokens": st.integers(0, 6),
        "temperature": st.sampled_from([0.0, 0.4, 1.0, 3.0]),
        "top_k": st.integers(0, VOCAB_SIZE),
        "top_p": st.floats(0.05, 1),
        "min_p": st.floats(0, 1),
        "typical_p": st.floats(0.05, 1),
    },
)
some_examples = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@some_examples
@given(values=STAGES, prompt=st.lists(IDS, min_size=1, max_size=6))
def test_the_killed_by_sets_partition_the_vocabulary(
    small: Checkpoint, values: dict[str, Any], prompt: list[int]
) -> None:
    got = run(small, prompt, max_tokens=6, alternatives=100, ignore_eos=True, **values)
    assert len(got.tokens) == 6
    for token in got.tokens:
        check_account(token)


def check_account(token: TokenPicked) -> None:
    """Each of the tokens is kept or removed by one stage; counts and masses add up after every stage."""
    assert sorted(c.token_id for c in token.candidates) == list(range(VOCAB_SIZE))
    raw = {c.token_id: math.exp(c.raw_logprob) for c in token.candidates if c.raw_logprob is not None}
    kept = {c.token_id for c in token.candidates if c.logprob is not None}
    removed = {stage: {c.token_id for c in token.candidates if c.removed_by == stage} for stage in token.kept}
    assert sorted([*kept, *(i for ids in removed.values() for i in ids)]) == list(range(VOCAB_SIZE))
    assert token.token_id in kept
    num_left = VOCAB_SIZE
    for stage, ids in removed.items():
        num_left -= len(ids)
        assert token.kept[stage] == num_left
        assert token.removed_mass[stage] == pytest.approx(sum(raw[i] for i in ids), abs=2e-6)
    assert num_left == len(kept)
    assert sum(token.removed_mass.values()) + sum(raw[i] for i in kept) == pytest.approx(1, abs=5e-6)  # 8 roundings
    assert sum(raw.values()) + token.others.raw == pytest.approx(1, abs=1e-6)
    processed = [math.exp(c.logprob) for c in token.candidates if c.logprob is not None]
    assert sum(processed) + token.others.processed == pytest.approx(1, abs=1e-6)


@some_examples
@given(case=any_settings, ending=any_stops, prompt=st.sampled_from(PROMPTS), size=st.integers(1, 9))
def test_a_prompt_in_chunks_of_any_size_tells_the_same_run(
    tiny: Checkpoint, case: dict[str, Any], ending: dict[str, Any], prompt: str, size: int
) -> None:
    case = {"max_tokens": 5, **case, **ending}
    whole = run(tiny, prompt, **case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "CHUNK_POSITIONS", size)
        chunked = run(tiny, prompt, **case)
    num_positions = len(tiny.encode(prompt))
    assert chunked.ended.passes.prefill == -(-num_positions // size)
    assert (chunked.token_ids, chunked.text, chunked.ended.stop) == (whole.token_ids, whole.text, whole.ended.stop)
    for mine, theirs in zip(chunked.tokens, whole.tokens, strict=True):
        assert mine.raw_logprob == pytest.approx(theirs.raw_logprob, abs=1e-4)
        assert mine.kept.keys() == theirs.kept.keys()
