"""A branch in the engine: its opening is taken as it is, with its numbers, and then it picks as any other run."""

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.errors import ConstraintError, PromptError, SettingError
from models.events import Prefilled, StopReason
from models.sampling import Settings
from tests.fakes.any_settings import any_settings
from tests.fakes.engine_runs import Told, assert_alike_tokens, drain, request, run, told
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine, Request

PROMPT = "the quick brown fox"
LAW = settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def branch(checkpoint: Checkpoint, opening: tuple[int, ...], *, generated: tuple[int, ...] = (), **values: Any) -> Told:
    effective = Settings.parse({"seed": 7, **values})
    engine = Engine(checkpoint)
    ids = checkpoint.encode(PROMPT)
    engine.add(Request("a", ids, effective, generated, opening=opening))
    return told(drain(engine))["a"]


@LAW
@given(case=any_settings, data=st.data())
def test_a_branch_that_puts_in_what_was_picked_is_its_parent(
    tiny: Checkpoint, case: dict[str, Any], data: st.DataObject
) -> None:
    case = {"seed": 3, "max_tokens": 40, **case}
    parent = run(tiny, PROMPT, **case)
    position = data.draw(st.integers(1, max(1, len(parent.tokens))))
    child = branch(tiny, parent.token_ids[:position], **case)
    assert_alike_tokens(child.tokens, parent.tokens)
    assert child.ended.stop == parent.ended.stop


def test_another_token_is_taken_and_the_noise_after_it_is_that_of_the_position(tiny: Checkpoint) -> None:
    parent = run(tiny, PROMPT, max_tokens=30)
    other = next(c.token_id for c in parent.tokens[20].candidates if c.token_id != parent.token_ids[20])
    opening = (*parent.token_ids[:20], other)
    child = branch(tiny, opening, max_tokens=30)
    assert child.token_ids[:21] == opening
    # The oracle: the same text as a prompt gives the raw numbers, and each position has the noise of the parent there.
    as_prompt = run(tiny, (*tiny.encode(PROMPT), *opening), max_tokens=1)
    assert child.tokens[21].entropy == pytest.approx(as_prompt.tokens[0].entropy, abs=1e-4)
    theirs = {c.token_id: c.noise for c in parent.tokens[25].candidates}
    shared = [c for c in child.tokens[25].candidates if c.token_id in theirs]
    assert shared
    assert all(c.noise == theirs[c.token_id] for c in shared)


def test_speed_and_gaps_are_those_of_the_picks(tiny: Checkpoint) -> None:
    """The clock goes on by a second whenever it is read: an opening of 20 tokens adds nothing to 14 picks."""
    parent = run(tiny, PROMPT, max_tokens=34)
    ticks = itertools.count()
    engine = Engine(tiny, clock=lambda: float(next(ticks)))
    engine.add(Request("a", tiny.encode(PROMPT), Settings(seed=7, max_tokens=34), opening=parent.token_ids[:20]))
    child = told(drain(engine))["a"]
    timing = child.ended.timing
    assert timing.decode_ms == pytest.approx(child.tokens[-1].elapsed_ms - child.tokens[19].elapsed_ms)
    assert timing.tokens_per_s == pytest.approx(14 / timing.decode_ms * 1000, abs=1e-3)
    assert timing.itl_ms is not None
    assert timing.itl_ms["p50"] >= 1000


def test_an_opening_is_read_in_passes_of_sixteen_and_told_token_by_token(tiny: Checkpoint) -> None:
    opening = run(tiny, PROMPT, max_tokens=34).token_ids
    child = branch(tiny, opening, max_tokens=37)
    # The prompt and its last logits give token 0; 33 more of the opening take three passes; then one a token.
    assert (child.ended.passes.prefill, child.ended.passes.decode) == (1 + 3, 3)
    assert [token.position for token in child.tokens] == list(range(37))


def test_a_later_attempt_goes_on_inside_an_opening_and_after_it(tiny: Checkpoint) -> None:
    opening = run(tiny, PROMPT, max_tokens=20).token_ids
    whole = branch(tiny, opening, max_tokens=25)
    for num_saved in (5, 20, 23):
        later = branch(tiny, opening, generated=whole.token_ids[:num_saved], max_tokens=25)
        assert later.token_ids == whole.token_ids[num_saved:]


def test_what_ends_a_run_ends_it_inside_an_opening_too(tiny: Checkpoint) -> None:
    opening = run(tiny, PROMPT, max_tokens=20).token_ids
    child = branch(tiny, opening, max_tokens=25, stop_token_ids=[opening[10]])
    first = opening.index(opening[10])
    assert (child.ended.stop.reason, child.ended.num_tokens) == (StopReason.STOP_TOKEN, first + 1)


def test_a_token_that_the_settings_remove_is_taken_and_says_so(tiny: Checkpoint) -> None:
    banned = run(tiny, PROMPT, max_tokens=1).token_ids[0]
    child = branch(tiny, (banned,), max_tokens=3, banned=[banned])
    assert child.token_ids[0] == banned
    assert child.tokens[0].logprob is None
    assert banned not in child.token_ids[1:]


def test_it_shares_an_engine_with_others(tiny: Checkpoint) -> None:
    parent = run(tiny, PROMPT, max_tokens=30)
    engine = Engine(tiny, num_rows=2)
    engine.add(request(tiny, PROMPT, sequence_id="parent", max_tokens=30))
    ids = tiny.encode(PROMPT)
    engine.add(Request("child", ids, Settings(seed=7, max_tokens=30), opening=parent.token_ids[:18]))
    both = told(drain(engine))
    assert both["parent"].token_ids == both["child"].token_ids == parent.token_ids
    assert isinstance(both["child"].prefilled, Prefilled)


@pytest.mark.parametrize(
    ("opening", "values", "error", "words"),
    [
        ((10**6,), {}, PromptError, "outside the vocabulary"),
        ((5,), {"num_beams": 2}, SettingError, "num_beams"),
        ((5,), {"constraint": {"choice": ["yes", "no"]}}, ConstraintError, "output position 0"),
    ],
)
def test_what_cannot_begin_an_output_is_refused(
    tiny: Checkpoint, opening: tuple[int, ...], values: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        branch(tiny, opening, max_tokens=5, **values)


def test_an_opening_that_fills_the_context_is_refused(tiny: Checkpoint) -> None:
    num = tiny.info.context_length - len(tiny.encode(PROMPT))
    with pytest.raises(PromptError, match="room"):
        branch(tiny, (5,) * num, max_tokens=num + 5)
