"""What-if says where a fresh run with other settings leaves the saved one, and that is where it does."""

import random
from typing import Any

import pytest

from models.errors import ConstraintError, SettingError
from models.events import StopReason
from models.examination import FirstDifference, WhatIf
from models.sampling import DEFAULT_ORDER, Settings
from tests.fakes.engine_runs import Told, drain, run, told
from tests.fakes.phrases import FOX, ids, saying
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine, Request
from workers.engine.what_if import what_if

PROMPTS = ["the", "the quick brown fox", "there is a cat in", "a a a a a", "lazy dog and the lazy"]
NUM_RUNS = 50
CHOICES: dict[str, list[Any]] = {
    "temperature": [0.0, 0.5, 0.9, 1.0, 1.5],
    "top_k": [0, 0, 5, 50],
    "top_p": [1.0, 0.95, 0.5],
    "min_p": [0.0, 0.0, 0.05],
    "typical_p": [1.0, 1.0, 0.8],
    "repetition_penalty": [1.0, 1.1, 1.8],
    "presence_penalty": [0.0, 0.0, 1.5],
    "frequency_penalty": [0.0, 0.0, -1.0],
    "no_repeat_ngram_size": [0, 0, 2],
    "logit_bias": [{}, {"263": 3.0}, {"358": 4.0}],
    "banned": [[], [271, 300]],
    "min_tokens": [0, 0, 4],
    "max_tokens": [5, 12, 20, 20],
    "stop": [[], [], ["e"], ["th", " f"]],
    "stop_token_ids": [[], [], list(range(0, 40))],
    "ignore_eos": [False, True],
    "constraint": [None, None, {"regex": "[ a-z]{0,30}"}, {"choice": [" the cat", " a dog sat", "x"]}],
    "seed": [1, 2, 2**63],
}


def settings_of(draw: random.Random) -> dict[str, Any]:
    """Mostly neutral, so that runs agree for a while."""
    values = {name: draw.choice(choices) for name, choices in CHOICES.items() if draw.random() < 0.4}
    order = [stage.value for stage in DEFAULT_ORDER]
    if draw.random() < 0.2:
        draw.shuffle(order)
        values.pop("constraint", None)  # it may not come after temperature where that is 0
    return {"max_tokens": 20, "seed": 1, **values, "order": order}


def near(draw: random.Random, values: dict[str, Any]) -> dict[str, Any]:
    """The same settings with one to three of them changed."""
    names = draw.sample(sorted(CHOICES), draw.randint(1, 3))
    if values["order"] != list(DEFAULT_ORDER):
        names = [name for name in names if name != "constraint"]
    return {**values, **{name: draw.choice(CHOICES[name]) for name in names}}


@pytest.mark.parametrize("number", range(NUM_RUNS))
def test_a_fresh_run_differs_where_it_was_predicted(request: pytest.FixtureRequest, number: int) -> None:
    tiny: Checkpoint = request.getfixturevalue("tiny_gpt2" if number % 2 else "tiny_llama")
    draw = random.Random(number)
    prompt = draw.choice(PROMPTS)
    old = settings_of(draw)
    new = near(draw, old) if number % 3 else settings_of(draw)
    saved, fresh = run(tiny, prompt, **old), run(tiny, prompt, **new)
    found = what_if(tiny, tiny.encode(prompt), saved.token_ids, Settings.parse(new))
    expected = first_difference(saved.token_ids, fresh.token_ids)
    position = None if found.first_difference is None else found.first_difference.position
    assert position == expected
    if found.first_difference is not None and position is not None:
        assert found.first_difference.saved_id == at(saved.token_ids, position)
        assert found.first_difference.fresh_id == at(fresh.token_ids, position)
        if found.first_difference.fresh_id is None:
            assert found.first_difference.fresh_stop is fresh.ended.stop.reason
    for alternative, token in zip(found.alternatives[:expected], fresh.tokens, strict=False):
        assert (alternative.token_id, alternative.picked_id) == (token.token_id, token.token_id)
        assert alternative.logprob == pytest.approx(token.logprob, abs=1e-4)


@pytest.mark.parametrize("number", range(NUM_RUNS))
def test_a_fresh_branch_differs_where_it_was_predicted(request: pytest.FixtureRequest, number: int) -> None:
    """Its opening is given under any settings; what of it another token would have won at is no difference."""
    tiny: Checkpoint = request.getfixturevalue("tiny_gpt2" if number % 2 else "tiny_llama")
    draw = random.Random(1000 + number)
    prompt = tiny.encode(draw.choice(PROMPTS))
    opening = tuple(draw.randrange(5, 250) for _ in range(draw.randint(1, 6)))
    old = {**settings_of(draw), "constraint": None}
    new = {**near(draw, old), "constraint": None}
    saved, fresh = (run_branch(tiny, prompt, opening, values) for values in (old, new))
    found = what_if(tiny, prompt, saved.token_ids, Settings.parse(new), opening=opening).first_difference
    expected = first_difference(saved.token_ids, fresh.token_ids)
    assert (None if found is None else found.position) == expected
    if found is not None and expected is not None:
        assert (found.saved_id, found.fresh_id) == (at(saved.token_ids, expected), at(fresh.token_ids, expected))
        assert expected >= len(opening) or len(opening) > min(len(saved.token_ids), len(fresh.token_ids))
        if found.fresh_id is None:
            assert found.fresh_stop is fresh.ended.stop.reason


def test_a_branch_that_was_cut_short_in_its_opening_goes_on_with_the_rest_of_it(tiny_llama: Checkpoint) -> None:
    prompt, opening = tiny_llama.encode("the"), (271, 300, 280)
    found = what_if(tiny_llama, prompt, opening[:1], Settings(seed=3, max_tokens=9), opening=opening)
    assert found.first_difference == FirstDifference(1, None, 300, None)


def test_an_opening_that_the_new_constraint_forbids_is_refused(tiny_llama: Checkpoint) -> None:
    settings = Settings(seed=3, max_tokens=9, constraint={"regex": "[0-9]+"})
    with pytest.raises(ConstraintError, match="does not allow token id 271"):
        what_if(tiny_llama, tiny_llama.encode("the"), (271, 300), settings, opening=(271,))


def run_branch(tiny: Checkpoint, prompt: tuple[int, ...], opening: tuple[int, ...], values: dict[str, Any]) -> Told:
    engine = Engine(tiny)
    engine.add(Request("a", prompt, Settings.parse(values), opening=opening))
    return told(drain(engine))["a"]


def at(token_ids: tuple[int, ...], position: int) -> int | None:
    return token_ids[position] if position < len(token_ids) else None


def first_difference(a: tuple[int, ...], b: tuple[int, ...]) -> int | None:
    for position in range(max(len(a), len(b))):
        if at(a, position) != at(b, position):
            return position
    return None


def asked(given_ids: list[int], **values: Any) -> WhatIf:
    checkpoint = saying(FOX, context_length=9)
    return what_if(checkpoint, checkpoint.encode("the"), given_ids, Settings.parse({"seed": 1, **values}))


class TestEndings:
    """An ending is a difference as a token is."""

    def test_the_same_settings_change_nothing(self) -> None:
        found = asked(ids(FOX)[:4], max_tokens=4)
        assert found.first_difference is None
        assert [a.picked_id for a in found.alternatives] == ids(FOX)[:4]

    def test_a_fresh_run_that_may_be_longer_differs_after_the_last_token(self) -> None:
        found = asked(ids(FOX)[:4], max_tokens=5)
        assert found.first_difference == FirstDifference(4, None, ids(FOX)[4], None)
        assert len(found.alternatives) == 4

    @pytest.mark.parametrize(
        ("values", "position", "reason"),
        [
            ({"max_tokens": 3}, 3, StopReason.MAX_TOKENS),
            ({"max_tokens": 0}, 0, StopReason.MAX_TOKENS),
            ({"stop": ["mps ov"]}, 3, StopReason.STOP_STRING),
            ({"stop_token_ids": ids(" jumps")}, 2, StopReason.STOP_TOKEN),
        ],
    )
    def test_a_fresh_run_that_ends_earlier(self, values: dict[str, Any], position: int, reason: StopReason) -> None:
        found = asked(ids(FOX), **values)
        assert found.first_difference == FirstDifference(position, ids(FOX)[position], None, reason)

    def test_an_end_token_ends_unless_it_is_ignored(self) -> None:
        checkpoint = saying(" fox", end=True)
        tokens = run(checkpoint, "the", max_tokens=5).token_ids
        prompt = checkpoint.encode("the")
        assert len(tokens) == 2
        assert what_if(checkpoint, prompt, tokens, Settings(seed=1)).first_difference is None
        goes_on = what_if(checkpoint, prompt, tokens, Settings(seed=1, ignore_eos=True))
        assert goes_on.first_difference == FirstDifference(2, None, tokens[1], None)
        held_back = what_if(checkpoint, prompt, tokens, Settings(seed=1, min_tokens=2))
        assert held_back.first_difference is not None
        assert (held_back.first_difference.position, held_back.alternatives[1].logprob) == (1, None)

    def test_a_full_context_ends_both(self) -> None:
        assert asked([*ids(FOX), ids(FOX)[-1], ids(FOX)[-1]], max_tokens=100).first_difference is None

    def test_nothing_was_saved(self) -> None:
        assert asked([], max_tokens=0).first_difference is None
        assert asked([], max_tokens=2).first_difference == FirstDifference(0, None, ids(FOX)[0], None)


def test_a_greedy_token_is_certain_or_impossible() -> None:
    found = asked([*ids(" fox"), 5, *ids(" jumps")], temperature=0.0)
    assert [a.logprob is None for a in found.alternatives] == [False, True, True]
    assert found.first_difference == FirstDifference(1, 5, ids(" jumps")[0], None)


def test_a_seed_is_needed(tiny_llama: Checkpoint) -> None:
    with pytest.raises(SettingError, match="seed"):
        what_if(tiny_llama, (5,), (6,), Settings())


@pytest.mark.checkpoint
def test_the_default_checkpoint_leaves_its_path_where_it_was_predicted(default_checkpoint: Checkpoint) -> None:
    prompt = "The capital of France is"
    saved = run(default_checkpoint, prompt, max_tokens=10, seed=4)
    for new in ({"temperature": 0.7}, {"top_p": 0.5}):
        values = {"max_tokens": 10, "seed": 4, **new}
        found = what_if(default_checkpoint, default_checkpoint.encode(prompt), saved.token_ids, Settings.parse(values))
        fresh = run(default_checkpoint, prompt, **values)
        position = None if found.first_difference is None else found.first_difference.position
        assert position == first_difference(saved.token_ids, fresh.token_ids)
