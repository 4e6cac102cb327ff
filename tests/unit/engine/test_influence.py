"""What each control did, against a plain replay of the oracle's stages with the control taken away."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from models.errors import SettingError
from models.examination import Influence
from models.sampling import NEUTRAL, Settings
from tests.fakes.any_settings import any_settings
from tests.fakes.engine_runs import run
from tests.fakes.phrases import FOX, ids, saying
from workers.engine import oracle
from workers.engine.checkpoint import Checkpoint
from workers.engine.constraint_oracle import allowed_next
from workers.engine.influence import CONTROLS, influence
from workers.engine.noise import gumbel_numpy

PROMPT = "the quick brown fox"
NOT_CONTROLS = {
    "repetition_scope",
    "presence_frequency_scope",
    "order",
    "num_beams",  # with more than one there is no pick
    "length_penalty",
    "early_stopping",
    "max_tokens",
    "stop",
    "include_stop",
    "stop_token_ids",
    "ignore_eos",
    "alternatives",
    "parse_special",
    "seed",
}


def counts(found: Influence) -> dict[str, tuple[int, int]]:
    return {c.control: (c.num_changed, c.num_decided) for c in found.controls}


def test_every_setting_is_a_control_or_has_no_part_in_a_pick() -> None:
    assert set(CONTROLS) | NOT_CONTROLS >= set(Settings.model_fields)
    assert not set(CONTROLS) & NOT_CONTROLS


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=any_settings)
def test_the_counts_are_those_of_a_replay_one_position_and_one_control_at_a_time(
    tiny: Checkpoint, case: dict[str, Any]
) -> None:
    effective = Settings.parse({"seed": 3, "max_tokens": 10, **case})
    ran = run(tiny, PROMPT, **{"seed": 3, "max_tokens": 10, **case})
    found = influence(tiny, tiny.encode(PROMPT), ran.token_ids, effective)
    assert found.num_positions == len(ran.token_ids)
    assert counts(found) == brute_force(tiny, list(tiny.encode(PROMPT)), list(ran.token_ids), effective)


def brute_force(
    checkpoint: Checkpoint, prompt: list[int], output: list[int], effective: Settings
) -> dict[str, tuple[int, int]]:
    """Each position by itself, without a cache; the stages and the pick are the oracle's own."""
    changed: dict[str, tuple[int, int]] = {}
    neutral = NEUTRAL.as_dict()
    for control in CONTROLS:
        if effective.as_dict()[control] == neutral[control]:
            continue
        num_changed = num_decided = 0
        for position in range(len(output)):
            logits = oracle.raw_logits(checkpoint, prompt + output[:position])
            sides = [
                judged(checkpoint, logits, prompt, output[:position], values)
                for values in (effective, effective.with_changes(**{control: neutral[control]}))
            ]
            num_changed += not np.array_equal(sides[0][0], sides[1][0])
            num_decided += sides[0][1] != sides[1][1]
        changed[control] = (num_changed, num_decided)
    return changed


def judged(
    checkpoint: Checkpoint, logits: oracle.Logits, prompt: list[int], before: list[int], values: Settings
) -> tuple[Any, int]:
    """Final logits and pick at one position."""
    allowed = allowed_next(checkpoint, tuple(prompt), before, values)
    ends = frozenset(checkpoint.info.end_token_ids)
    place = oracle.Place(values, prompt, before, checkpoint.banned_ids(values), ends, allowed)
    scores, logprobs = oracle.final_logits(logits, place), oracle.processed_logprobs(logits, place)
    if values.is_greedy:
        return scores, int(np.argmax(scores))
    noise = gumbel_numpy(values.seed or 0, len(before), np.arange(len(logprobs), dtype=np.int64))
    return scores, int(np.argmax(logprobs + noise))


def asked(given_ids: list[int], **values: Any) -> Influence:
    checkpoint = saying(FOX)
    return influence(checkpoint, checkpoint.encode("the"), given_ids, Settings.parse({"seed": 1, **values}))


class TestByHand:
    """A network that is sure of one token at each place; all other logits are equal."""

    def test_neutral_settings_have_no_influence(self) -> None:
        found = asked(ids(FOX))
        assert (found.num_positions, found.controls, found.idle) == (6, (), ())

    def test_a_ban_decides_the_one_place_where_the_token_wins_and_changes_all(self) -> None:
        assert counts(asked(ids(FOX), banned=ids(" over"))) == {"banned": (6, 1)}

    def test_what_a_branch_was_given_was_changed_and_not_decided(self) -> None:
        checkpoint, place = saying(FOX), ids(FOX).index(ids(" over")[0])
        known = (checkpoint, checkpoint.encode("the"), ids(FOX), Settings(seed=1, banned=tuple(ids(" over"))))
        assert counts(influence(*known, num_given=place)) == {"banned": (6, 1)}
        assert counts(influence(*known, num_given=place + 1)) == {"banned": (6, 0)}
        assert counts(influence(*known, num_given=len(ids(FOX)))) == {"banned": (6, 0)}

    def test_two_controls_of_one_stage_are_two(self) -> None:
        found = counts(asked(ids(FOX), presence_penalty=0.5, frequency_penalty=0.5))
        assert found == {"presence_penalty": (5, 0), "frequency_penalty": (5, 0)}  # nothing precedes the first token

    def test_a_control_that_did_nothing_is_named(self) -> None:
        found = asked(ids(FOX), no_repeat_ngram_size=3, min_tokens=0, top_k=100_000, temperature=0.5)
        assert counts(found) == {"no_repeat_ngram_size": (0, 0), "temperature": (6, 0), "top_k": (0, 0)}
        assert found.idle == ("no_repeat_ngram_size", "top_k")

    def test_what_greedy_leaves_out_did_nothing(self) -> None:
        found = asked(ids(FOX), temperature=0.0, top_k=1)
        assert counts(found)["top_k"] == (0, 0)

    def test_a_penalty_on_what_another_stage_removes_did_nothing(self) -> None:
        found = asked(ids(" fox jumps fox"), top_k=1, presence_penalty=0.5)
        assert counts(found)["presence_penalty"] == (0, 0)
        assert counts(found)["top_k"][0] == 3

    def test_a_seed_is_needed(self) -> None:
        with pytest.raises(SettingError, match="seed"):
            asked(ids(FOX), seed=None)
