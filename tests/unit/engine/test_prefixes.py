"""Sequences whose texts begin alike compute the beginning once."""

import random

import numpy as np
import pytest

from tests.fakes.engine_runs import assert_alike, drain, request, run, told
from workers.engine.cache import SequenceCache
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine
from workers.engine.prefixes import LEAST_SHARED, Prefixes, common
from workers.engine.runner import Runner

PROMPT = [(17 * i) % 400 for i in range(40)]
OTHER = [(23 * i + 5) % 400 for i in range(40)]


def array(token_ids: list[int]) -> np.ndarray:
    return np.array(token_ids, dtype=np.int64)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [([], [], 0), ([1], [], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2], 2), ([1, 2, 3], [1, 9, 3], 1), ([1], [2], 0)],
)
def test_what_two_texts_begin_with(first: list[int], second: list[int], expected: int) -> None:
    assert common(array(first), array(second)) == common(array(second), array(first)) == expected


class TestKept:
    """The caches of sequences that have ended."""

    def filled(self, checkpoint: Checkpoint, token_ids: list[int]) -> SequenceCache:
        runner = Runner(checkpoint)
        cache = runner.new_cache()
        runner.prefill(cache, token_ids)
        return cache

    def test_the_longest_beginning_is_found_and_the_last_token_is_left_to_compute(self, tiny: Checkpoint) -> None:
        prefixes = Prefixes(10**9)
        prefixes.keep(array(PROMPT[:10]), self.filled(tiny, PROMPT[:10]))
        longer = self.filled(tiny, [*PROMPT[:20], 3])
        prefixes.keep(array([*PROMPT[:20], 3]), longer)
        found = prefixes.find(array(PROMPT), [])
        assert found is not None
        assert (found.cache, found.num_positions) == (longer, 20)
        found = prefixes.find(array(PROMPT[:20]), [])
        assert found is not None
        assert found.num_positions == 19
        assert prefixes.find(array(OTHER), []) is None

    def test_a_few_tokens_are_not_worth_it(self, tiny: Checkpoint) -> None:
        prefixes = Prefixes(10**9)
        prefixes.keep(array(PROMPT), self.filled(tiny, PROMPT))
        assert prefixes.find(array([*PROMPT[: LEAST_SHARED - 1], 1, 2]), []) is None
        assert prefixes.find(array([*PROMPT[:LEAST_SHARED], 1, 2]), []) is not None

    def test_what_was_used_longest_ago_goes_first(self, tiny: Checkpoint) -> None:
        texts = [PROMPT, OTHER, PROMPT[::-1]]
        caches = [self.filled(tiny, text) for text in texts]
        prefixes = Prefixes(2 * caches[0].num_allocated_bytes)
        prefixes.keep(array(texts[0]), caches[0])
        prefixes.keep(array(texts[1]), caches[1])
        assert prefixes.find(array(texts[0]), []) is not None
        prefixes.keep(array(texts[2]), caches[2])
        assert prefixes.find(array(texts[1]), []) is None
        assert prefixes.find(array(texts[0]), []) is not None
        assert prefixes.num_bytes <= 2 * caches[0].num_allocated_bytes
        prefixes.shrink(0)
        assert prefixes.num_bytes == 0

    def test_a_longer_text_takes_the_place_of_its_own_beginning(self, tiny: Checkpoint) -> None:
        prefixes = Prefixes(10**9)
        prefixes.keep(array(PROMPT[:20]), self.filled(tiny, PROMPT[:20]))
        whole = self.filled(tiny, PROMPT)
        prefixes.keep(array(PROMPT), whole)
        assert prefixes.num_bytes == whole.num_allocated_bytes

    @pytest.mark.parametrize("seed", range(4))
    def test_the_bytes_are_those_of_the_caches_whatever_came_and_went(self, tiny: Checkpoint, seed: int) -> None:
        draw = random.Random(seed)
        prefixes = Prefixes(10**9)
        seen = set()
        for _ in range(60):
            text = draw.choice([PROMPT, OTHER, PROMPT[::-1]])
            ids = [*text[: draw.randint(4, 40)], draw.randint(0, 2)]
            match draw.randrange(4):
                case 0:
                    found = prefixes.find(array(ids), [])
                    if found is not None:
                        Runner(tiny).prefill(found.cache.beginning(found.num_positions), ids[found.num_positions :])
                case 1:
                    prefixes.shrink(draw.choice([prefixes.num_bytes, prefixes.num_bytes * 3 // 4, 0]))
                case _:
                    prefixes.keep(array(ids), self.filled(tiny, ids))
            assert prefixes.num_bytes == sum(kept.cache.num_allocated_bytes for kept in prefixes._kept.values())
            seen.add(prefixes.num_bytes)
        assert len(seen) > 3, "something came and went"

    def test_the_bytes_of_what_is_kept_are_counted_once(
        self, tiny: Checkpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        prefixes = Prefixes(10**9)
        prefixes.keep(array(PROMPT), self.filled(tiny, PROMPT))
        expected = prefixes.num_bytes
        monkeypatch.setattr(SequenceCache, "num_allocated_bytes", None)
        assert prefixes.num_bytes == expected > 0


class TestInTheEngine:
    """Who computes what."""

    def test_arms_over_one_prompt_prefill_it_once(self, tiny: Checkpoint) -> None:
        engine = Engine(tiny, num_rows=8)
        for arm in range(8):
            engine.add(request(tiny, PROMPT, sequence_id=str(arm), temperature=arm / 4, max_tokens=5))
        arms = told(drain(engine))
        computed = [arms[str(arm)].ended.passes.prompt_tokens_computed for arm in range(8)]
        assert computed == [40, 1, 1, 1, 1, 1, 1, 1]
        for arm in range(8):
            prefilled = arms[str(arm)].prefilled
            assert prefilled is not None
            assert (prefilled.num_prompt_tokens, prefilled.num_computed) == (40, computed[arm])
            assert_alike(arms[str(arm)], run(tiny, PROMPT, temperature=arm / 4, max_tokens=5))

    def test_an_arm_that_comes_later_or_after_the_end_shares_too(self, tiny: Checkpoint) -> None:
        engine = Engine(tiny, num_rows=2)
        engine.add(request(tiny, PROMPT, sequence_id="first", max_tokens=6))
        outputs = engine.step() + engine.step()
        engine.add(request(tiny, [*PROMPT, 7, 8, 9], sequence_id="beside", max_tokens=3))
        outputs += drain(engine)
        engine.add(request(tiny, PROMPT, sequence_id="after", max_tokens=3))
        got = told([*outputs, *drain(engine)])
        assert got["beside"].ended.passes.prompt_tokens_computed == 3
        assert got["after"].ended.passes.prompt_tokens_computed == 1
        assert_alike(got["beside"], run(tiny, [*PROMPT, 7, 8, 9], max_tokens=3))
        assert_alike(got["after"], run(tiny, PROMPT, max_tokens=3))

    def test_a_resumed_run_goes_on_from_what_is_still_there(self, tiny: Checkpoint) -> None:
        engine = Engine(tiny)
        engine.add(request(tiny, PROMPT, sequence_id="first", max_tokens=10))
        whole = told(drain(engine))["first"]
        engine.add(request(tiny, PROMPT, sequence_id="again", generated=whole.token_ids[:6], max_tokens=10))
        again = told(drain(engine))["again"]
        assert again.ended.passes.prompt_tokens_computed == 0
        assert again.token_ids == whole.token_ids[6:]

    def test_what_one_writes_does_not_reach_the_other(self, tiny: Checkpoint) -> None:
        """They begin with copies: the first goes on writing after the point at which the second began."""
        engine = Engine(tiny, num_rows=2)
        engine.add(request(tiny, PROMPT, sequence_id="a", seed=1, max_tokens=20))
        outputs = engine.step()
        engine.add(request(tiny, PROMPT, sequence_id="b", seed=2, max_tokens=20))
        got = told([*outputs, *drain(engine)])
        assert_alike(got["a"], run(tiny, PROMPT, seed=1, max_tokens=20))
        assert_alike(got["b"], run(tiny, PROMPT, seed=2, max_tokens=20))

    def test_other_prompts_share_nothing(self, tiny: Checkpoint) -> None:
        engine = Engine(tiny, num_rows=2)
        engine.add(request(tiny, PROMPT, sequence_id="a", max_tokens=2))
        engine.add(request(tiny, OTHER, sequence_id="b", max_tokens=2))
        assert {t.ended.passes.prompt_tokens_computed for t in told(drain(engine)).values()} == {40}
