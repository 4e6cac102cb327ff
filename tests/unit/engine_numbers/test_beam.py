"""The beam search's policy: numbers worked by hand, and every text there is."""

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.fakes.exhaustive import World
from workers.engine.beam import BeamRules, Continuation, Fate, Step, decide

END = 3
RULES = BeamRules(num_beams=2, length_penalty=1.0, early_stopping=False, end_token_ids=frozenset({END}), max_length=4)
ln = math.log


def rules(**changes: Any) -> BeamRules:
    return replace(RULES, **changes)


def logprobs(*rows: list[float]) -> Tensor:
    """(beams, vocab) from probabilities."""
    return torch.tensor([[ln(p) if p else -math.inf for p in row] for row in rows], dtype=torch.float32)


def running(step: Step) -> list[tuple[int, int, float]]:
    return [(c.parent, c.token_id, pytest.approx(c.total, abs=1e-6)) for c in step.running]


def finished(step: Step) -> list[tuple[int, int, float]]:
    return [(f.continuation.parent, f.continuation.token_id, pytest.approx(f.score, abs=1e-6)) for f in step.finished]


def pruned(step: Step) -> list[tuple[int, int, float]]:
    return [(p.continuation.parent, p.continuation.token_id, pytest.approx(p.margin, abs=1e-6)) for p in step.pruned]


class TestByHand:
    """Two beams over four tokens, of which 3 ends a text."""

    FIRST = logprobs([0.5, 0.15, 0.05, 0.3])
    SECOND = logprobs([0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1])
    TOTALS = (ln(0.5), ln(0.15))

    def test_first_step(self) -> None:
        step = decide(self.FIRST, [0.0], [], length=1, rules=RULES)
        assert running(step) == [(0, 0, ln(0.5)), (0, 1, ln(0.15))]
        assert finished(step) == [(0, END, ln(0.3))]
        assert pruned(step) == [(0, 2, ln(0.15 / 0.05))]
        assert not step.is_over

    def test_second_step(self) -> None:
        # .5 x .4 ends; .5 x .3 and .15 x .7 run on; .5 x .2 is the last that is looked at
        step = decide(self.SECOND, self.TOTALS, [ln(0.3)], length=2, rules=RULES)
        assert running(step) == [(0, 2, ln(0.15)), (1, 0, ln(0.105))]
        assert finished(step) == [(0, END, ln(0.2) / 2)]
        assert pruned(step) == [(0, 1, ln(0.105 / 0.1))]

    @pytest.mark.parametrize(
        ("early_stopping", "penalty", "is_over"),
        [
            (True, 1.0, True),
            (False, 1.0, False),  # ln .15 / 2 = -.95 beats ln .3 = -1.20
            ("never", 1.0, False),
            (False, 0.0, True),  # ln .15 is worse than ln .3 and ln .2
            ("never", 0.0, True),
            (False, -1.0, True),  # 2 ln .15 = -3.79 is worse than 2 ln .2 = -3.22
            ("never", -1.0, True),
        ],
    )
    def test_when_it_is_over(self, early_stopping: Any, penalty: float, is_over: bool) -> None:
        search = rules(early_stopping=early_stopping, length_penalty=penalty)
        assert decide(self.SECOND, self.TOTALS, [ln(0.3)], length=2, rules=search).is_over is is_over

    def test_never_reckons_with_the_longest_length_where_that_helps(self) -> None:
        # The best running one is worth ln .15 / 2 = -.95 now and could be worth ln .15 / 4 = -.47
        scores = [-0.5, -0.6]
        assert decide(self.SECOND, self.TOTALS, scores, length=2, rules=RULES).is_over
        never = rules(early_stopping="never")
        assert not decide(self.SECOND, self.TOTALS, scores, length=2, rules=never).is_over

    def test_a_search_goes_on_while_it_has_fewer_finished_beams_than_it_keeps(self) -> None:
        step = decide(self.FIRST, [0.0], [], length=1, rules=rules(early_stopping=True))
        assert (len(step.finished), step.is_over) == (1, False)

    def test_an_end_that_is_not_among_the_best_does_not_finish(self) -> None:
        step = decide(logprobs([0.5, 0.3, 0.05, 0.15]), [0.0], [], length=1, rules=RULES)
        assert finished(step) == []
        assert pruned(step) == [(0, END, ln(0.3 / 0.15)), (0, 2, ln(0.3 / 0.05))]

    def test_an_end_that_is_worse_than_the_finished_ones_is_pruned_by_its_score(self) -> None:
        step = decide(self.SECOND, self.TOTALS, [-0.1, -0.2], length=2, rules=RULES)
        assert finished(step) == []
        assert pruned(step) == [(0, END, -0.2 - ln(0.2) / 2), (0, 1, ln(0.105 / 0.1))]

    def test_at_the_longest_length_the_best_finish_whatever_they_are(self) -> None:
        step = decide(self.SECOND, self.TOTALS, [], length=2, rules=rules(max_length=2))
        assert step.running == ()
        assert finished(step) == [(0, END, ln(0.2) / 2), (0, 2, ln(0.15) / 2)]
        assert pruned(step) == [(1, 0, ln(0.15 / 0.105)), (0, 1, ln(0.15 / 0.1))]
        assert step.is_over

    def test_as_many_are_looked_at_as_could_end_before_enough_run_on(self) -> None:
        """With two end tokens the best four of two beams may all end: the two that run on are fifth and sixth."""
        step = decide(
            logprobs([0.06, 0.04, 0.45, 0.45], [0.08, 0.02, 0.45, 0.45]),
            [ln(0.5), ln(0.4)],
            [],
            length=2,
            rules=rules(end_token_ids=frozenset({2, END})),
        )
        assert running(step) == [(1, 0, ln(0.032)), (0, 0, ln(0.03))]
        assert finished(step) == [(0, 2, ln(0.225) / 2), (0, END, ln(0.225) / 2)]

    def test_without_end_tokens_only_the_length_ends(self) -> None:
        step = decide(self.FIRST, [0.0], [], length=1, rules=rules(end_token_ids=frozenset()))
        assert running(step) == [(0, 0, ln(0.5)), (0, END, ln(0.3))]
        assert (step.finished, step.is_over) == ((), False)

    def test_what_a_judge_ends_finishes_as_with_an_end_token(self) -> None:
        fates = {0: Fate.ENDS}
        step = decide(self.FIRST, [0.0], [], length=1, rules=RULES, judge=lambda c: fates.get(c.token_id, Fate.GOES_ON))
        assert running(step) == [(0, 1, ln(0.15)), (0, 2, ln(0.05))]
        assert finished(step) == [(0, 0, ln(0.5)), (0, END, ln(0.3))]

    def test_what_a_judge_calls_impossible_takes_no_place(self) -> None:
        """Without the first, .3 and .15 are the best two, and .15 and .05 run on."""
        step = decide(
            self.FIRST,
            [0.0],
            [],
            length=1,
            rules=RULES,
            judge=lambda c: Fate.IMPOSSIBLE if c.token_id == 0 else Fate.GOES_ON,
        )
        assert running(step) == [(0, 1, ln(0.15)), (0, 2, ln(0.05))]
        assert finished(step) == [(0, END, ln(0.3))]
        assert pruned(step) == []

    def test_where_nothing_is_possible_nothing_is_left(self) -> None:
        for step in (
            decide(logprobs([0, 0, 0, 0]), [-1.0], [], length=1, rules=RULES),
            decide(self.FIRST, [0.0], [], length=1, rules=RULES, judge=lambda _: Fate.IMPOSSIBLE),
        ):
            assert (step.running, step.finished, step.pruned, step.is_over) == ((), (), (), True)


class TestEdges:
    """Equals, what does not exist, and numbers at their limits."""

    def test_equals_go_by_beam_and_then_by_token(self) -> None:
        step = decide(torch.zeros(2, 5), [0.0, 0.0], [], length=1, rules=rules(num_beams=3, end_token_ids=frozenset()))
        assert [(c.parent, c.token_id) for c in step.running] == [(0, 0), (0, 1), (0, 2)]
        assert [(p.continuation.parent, p.continuation.token_id) for p in step.pruned] == [(0, 3), (0, 4), (1, 0)]

    def test_what_is_impossible_is_not_there(self) -> None:
        step = decide(logprobs([0.6, 0, 0, 0.4]), [0.0], [], length=1, rules=rules(num_beams=16))
        assert (running(step), finished(step)) == ([(0, 0, ln(0.6))], [(0, END, ln(0.4))])
        assert step.pruned == ()

    def test_a_search_without_a_way_on_is_over(self) -> None:
        step = decide(logprobs([0, 0, 0, 1]), [-1.0], [], length=3, rules=RULES)
        assert (step.running, step.is_over) == ((), True)
        assert finished(step) == [(0, END, -1 / 3)]

    def test_totals_are_added_in_float32(self) -> None:
        first = torch.tensor([[-0.1, -9.0]], dtype=torch.float32)
        step = decide(first, [-1000.0], [], length=2, rules=RULES)
        assert step.running[0] == Continuation(0, 0, float(np.float32(-1000.0) + np.float32(-0.1)))

    @pytest.mark.parametrize(("penalty", "score"), [(0.0, -6.0), (1.0, -2.0), (2.0, -6 / 9), (-1.0, -18.0)])
    def test_a_score_is_the_total_by_the_generated_length(self, penalty: float, score: float) -> None:
        assert rules(length_penalty=penalty).score(-6.0, 3) == pytest.approx(score)

    @pytest.mark.parametrize("penalty", [-100.0, 100.0])
    @pytest.mark.parametrize("length", [1, 2, 1000, 1_000_000])
    def test_scores_are_finite_and_keep_their_order(self, penalty: float, length: int) -> None:
        search = rules(length_penalty=penalty)
        assert -math.inf < search.score(-1e7, length) < search.score(-0.5, length) < 0


def follow(world_logprobs: Any, search: BeamRules) -> tuple[tuple[int, ...], float]:
    """The policy step by step; the winner and its score."""
    texts: list[tuple[int, ...]] = [()]
    totals, done = [0.0], []
    for length in range(1, search.max_length + 1):
        rows = torch.stack([torch.from_numpy(world_logprobs(text)).float() for text in texts])
        step = decide(rows, totals, [score for score, _ in done], length=length, rules=search)
        done += [(f.score, (*texts[f.continuation.parent], f.continuation.token_id)) for f in step.finished]
        done = sorted(done, key=lambda pair: -pair[0])[: search.num_beams]
        texts = [(*texts[c.parent], c.token_id) for c in step.running]
        totals = [c.total for c in step.running]
        if step.is_over:
            break
    return done[0][1], done[0][0]


@functools.cache
def random_world(seed: int, vocab_size: int, max_length: int) -> tuple[Any, World]:
    """Log-probabilities that depend on the whole text before, and all texts under them."""

    def following(text: tuple[int, ...]) -> np.ndarray:
        logits = table[hash(text) % len(table)]
        return logits - np.log(np.exp(logits).sum())

    table = np.random.default_rng(seed).normal(scale=1.5, size=(9973, vocab_size))

    ends = frozenset({vocab_size - 1})
    return following, World.of(following, vocab_size=vocab_size, max_length=max_length, end_ids=ends)


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_beams_for_every_text_find_the_best_of_all(seed: int, penalty: float) -> None:
    """8 tokens, 4 steps, 4,096 beams."""
    following, world = random_world(seed, 8, 4)
    wide = BeamRules(8**4, penalty, "never", world.end_ids, max_length=4)
    text, score = follow(following, wide)
    assert text == world.best(penalty)
    assert score == pytest.approx(world.score(text, penalty), abs=1e-5)


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("penalty", [-1.0, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("num_beams", [2, 3, 4])
def test_few_beams_find_what_a_slow_search_finds(num_beams: int, penalty: float, early_stopping: Any) -> None:
    found = set()
    for seed in range(4):
        following, world = random_world(seed, 8, 4)
        search = BeamRules(num_beams, penalty, early_stopping, world.end_ids, max_length=4)
        text, score = follow(following, search)
        assert text == world.search(num_beams, penalty, early_stopping)
        assert score == pytest.approx(world.score(text, penalty), abs=1e-5)
        found.add(len(text))
    assert found
