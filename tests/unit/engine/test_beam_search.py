"""A beam search in the engine: what it tells and when, its account, its endings, and its resumption."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from models.beams import BeamsTraced
from models.events import Ended, Event, StopReason, TokenPicked
from tests.fakes import scripted
from tests.fakes.engine_runs import Told, assert_alike, drain, request, run, told
from tests.fakes.phrases import EOS, FOX, ids, saying
from workers.engine import search
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine

PROMPT = "the quick brown fox"


def searched(checkpoint: Checkpoint, prompt: Any = PROMPT, **settings: Any) -> Told:
    return run(checkpoint, prompt, **{"num_beams": 4, "max_tokens": 8, **settings})


def lineage(got: Told) -> BeamsTraced:
    assert got.beams is not None
    return got.beams


def without_times(token: TokenPicked) -> TokenPicked:
    return replace(token, elapsed_ms=0.0)


class TestStory:
    """One text, at the end; then how it was found."""

    def test_nothing_is_shown_before_the_end(self, tiny: Checkpoint) -> None:
        engine = Engine(tiny)
        engine.add(request(tiny, PROMPT, num_beams=4, max_tokens=6, ignore_eos=True))
        steps = []
        while engine.has_work:
            steps.append([type(o.payload).__name__ for o in engine.step()])
        assert steps == [["Prefilled"], [], [], [], [], [*["TokenPicked"] * 6, "BeamsTraced", "Ended"]]

    def test_the_tokens_are_the_winners_path_through_the_lineage(self, tiny: Checkpoint) -> None:
        beams = lineage(got := searched(tiny, logit_bias={str(tiny.info.end_token_ids[0]): 5.0}))
        assert beams.num_steps == len(beams.steps)
        *before, last = beams.beam_indices
        ends = beams.steps[len(got.tokens) - 1].finished
        (end,) = [b for b in ends if (b.parent, b.token_id, b.score) == (last, got.token_ids[-1], beams.sequence_score)]
        path, place = [end.token_id], end.parent
        for step, parent in zip(reversed(beams.steps[: len(before)]), reversed(before), strict=True):
            beam = step.beams[place]
            path.append(beam.token_id)
            place = beam.parent
            assert place == parent
        assert tuple(reversed(path)) == got.token_ids

    def test_totals_are_sums_and_scores_follow_the_rule(self, tiny: Checkpoint) -> None:
        beams = lineage(got := searched(tiny, length_penalty=2.0, ignore_eos=True))
        total = sum(token.logprob for token in got.tokens)
        assert beams.sequence_score == pytest.approx(total / 8**2, abs=1e-5)
        for length, step in enumerate(beams.steps, start=1):
            for beam in (*step.beams, *step.finished):
                assert beam.score == pytest.approx(beam.total / length**2, abs=1e-5)
            totals = [beam.total for beam in step.beams]
            assert totals == sorted(totals, reverse=True)

    def test_the_pruned_ones_lost_by_their_margin(self, tiny: Checkpoint) -> None:
        beams = lineage(searched(tiny, ignore_eos=True))
        for step in beams.steps[:-1]:
            assert (len(step.beams), len(step.pruned)) == (4, 4)
            assert all(pruned.margin >= 0 for pruned in step.pruned)
            chosen = {(b.parent, b.token_id) for b in step.beams}
            assert not chosen & {(p.parent, p.token_id) for p in step.pruned}

    def test_each_token_has_both_distributions_and_its_rivals(self, tiny: Checkpoint) -> None:
        got = searched(tiny, repetition_penalty=1.4, alternatives=5)
        token_ids = [*tiny.encode(PROMPT), *got.token_ids]
        with torch.inference_mode():
            logits = tiny.network(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0]
        raw = logits.double().log_softmax(-1).numpy()[-len(got.tokens) - 1 :]
        for token, logprobs in zip(got.tokens, raw, strict=False):
            assert token.raw_logprob == pytest.approx(logprobs[token.token_id], abs=1e-4)
            best = [c.raw_logprob for c in token.candidates][:5]
            np.testing.assert_allclose(np.array(best, dtype=float), np.sort(logprobs)[::-1][:5], atol=1e-4)
            assert all(c.noise is None for c in token.candidates)
            shown = sum(np.exp(c.logprob) for c in token.candidates if c.logprob is not None)
            assert shown + token.others.processed == pytest.approx(1.0, abs=1e-5)

    def test_a_stage_is_told_where_it_acted(self, tiny: Checkpoint) -> None:
        first = searched(tiny, ignore_eos=True).token_ids[0]
        got = searched(tiny, ignore_eos=True, banned=[first])
        (candidate,) = [c for c in got.tokens[0].candidates if c.token_id == first]
        assert (candidate.removed_by, candidate.logprob) == ("bias", None)

    def test_the_lineage_is_bounded(self, tiny: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(search, "MAX_TRACED_STEPS", 3)
        beams = lineage(got := searched(tiny, ignore_eos=True))
        assert (beams.num_steps, len(beams.steps), len(beams.beam_indices)) == (8, 3, len(got.tokens))

    def test_the_lineage_is_an_event_like_others_and_compact(self, tiny: Checkpoint) -> None:
        beams = lineage(searched(tiny, num_beams=16, max_tokens=100, ignore_eos=True))
        event = Event("run", 1, 9, beams)
        assert Event.decode(event.encode()) == event
        assert event.type == "beams"
        assert len(event.encode()) < 1200 * 100


class TestAccount:
    """Passes, rows, positions and bytes."""

    def test_one_pass_a_step_over_every_beam(self) -> None:
        checkpoint = saying(FOX)
        got = searched(checkpoint, "the quick brown", num_beams=3, max_tokens=5)
        assert checkpoint.network.num_positions == [3, 1, 1, 1, 1]
        assert checkpoint.network.num_rows == [1, 3, 3, 3, 3]
        passes = got.ended.passes
        assert (passes.prefill, passes.decode, passes.prompt_tokens_computed) == (1, 4, 3)
        assert got.ended.kv_positions == 3 * (3 + 5 - 1)
        assert got.ended.kv_bytes == checkpoint.info.kv_bytes(3 * 7)

    def test_passes_after_the_winner_had_ended_count_too(self) -> None:
        """The best text is found in two steps; four must have ended before the others are given up."""
        checkpoint = saying(" fox", end=True)
        got = searched(checkpoint, "the", early_stopping="never", max_tokens=6)
        assert got.token_ids == (*ids(" fox"), EOS)
        assert got.ended.passes.decode == lineage(got).num_steps - 1 == 3
        assert checkpoint.network.num_rows == [1, 4, 4, 4]

    def test_a_long_prompt_is_prefilled_in_chunks_by_one_row(self) -> None:
        checkpoint = saying(FOX)
        got = searched(checkpoint, ids("the" * 600), num_beams=2, max_tokens=3)
        assert checkpoint.network.num_positions == [512, 88, 1, 1]
        assert checkpoint.network.num_rows == [1, 1, 2, 2]
        assert got.text == " fox jumps over"

    def test_times_are_those_of_the_steps_and_the_last_is_the_end_of_the_search(self) -> None:
        """The clock ticks at the prefill's two ends and at each of four steps; the second token is the last."""
        ticks = itertools.count()
        engine = Engine(saying(" fox", end=True), clock=lambda: float(next(ticks)))
        engine.add(request(engine.checkpoint, "the", num_beams=4, early_stopping="never", max_tokens=6))
        got = told(drain(engine))["a"]
        assert [t.elapsed_ms for t in got.tokens] == [2000.0, 5000.0]
        assert (got.ended.timing.decode_ms, got.ended.timing.tokens_per_s) == (3000.0, 0.333)

    def test_no_tokens_are_no_search(self) -> None:
        got = searched(saying(FOX), "the", max_tokens=0)
        assert (got.tokens, got.beams, got.ended.stop.reason) == ((), None, StopReason.MAX_TOKENS)

    def test_one_token_is_the_best_one(self, tiny: Checkpoint) -> None:
        got = searched(tiny, max_tokens=1)
        assert got.token_ids == run(tiny, PROMPT, temperature=0.0, max_tokens=1).token_ids
        assert got.ended.passes.decode == 0

    def test_what_shares_the_engine_changes_nothing(self, tiny: Checkpoint) -> None:
        alone = searched(tiny)
        engine = Engine(tiny, num_rows=3)
        engine.add(request(tiny, "a cat", sequence_id="other", temperature=1.5, max_tokens=12))
        engine.add(request(tiny, PROMPT, sequence_id="a", num_beams=4, max_tokens=8))
        engine.add(request(tiny, "there", sequence_id="wide", num_beams=16, max_tokens=5))
        together = told(drain(engine))["a"]
        assert_alike(together, alone)
        assert together.ended.passes == alone.ended.passes


class TestEndings:
    """By its own rules, by other hands, and by faults. Whatever ends it, the best beam so far is the text."""

    def test_an_end_token(self) -> None:
        got = searched(saying(" brown fox", end=True), "the")
        assert (got.ended.stop.reason, got.ended.stop.token_id) == (StopReason.EOS, EOS)
        assert got.text == " brown fox"
        assert not got.tokens[-1].visible

    def test_the_budget(self) -> None:
        got = searched(saying(FOX), "the", max_tokens=3)
        assert (got.ended.stop.reason, got.text) == (StopReason.MAX_TOKENS, " fox jumps over")

    def test_min_tokens_hold_the_end_back(self) -> None:
        got = searched(saying(" brown", end=True), "the", min_tokens=4, max_tokens=6)
        assert EOS not in got.token_ids[:4]

    @pytest.mark.parametrize("reason", [StopReason.CANCELLED, StopReason.TIME_LIMIT])
    def test_interrupted(self, reason: StopReason) -> None:
        engine = Engine(saying(FOX))
        engine.add(request(engine.checkpoint, "the", num_beams=3, max_tokens=20))
        outputs = [*engine.step(), *engine.step(), *engine.step()]
        engine.cancel("a", reason)
        got = told([*outputs, *engine.step()])["a"]
        assert (got.ended.stop.reason, got.text) == (reason, " fox jumps over")
        assert (got.ended.num_tokens, lineage(got).num_steps, got.ended.passes.decode) == (3, 3, 2)
        assert not engine.has_work

    def test_interrupted_before_its_first_step(self) -> None:
        engine = Engine(saying(FOX))
        engine.add(request(engine.checkpoint, "the", num_beams=3))
        engine.cancel("a")
        got = told(engine.step())["a"]
        assert (got.tokens, got.beams, got.ended.stop.reason) == ((), None, StopReason.CANCELLED)

    @pytest.mark.parametrize("fault", [scripted.gives_nan, scripted.gives_infinity, scripted.gives_nothing])
    def test_one_beam_without_numbers_ends_the_search(self, fault: scripted.Fault) -> None:
        """Of three beams only the one that follows the script meets the fault."""
        got = searched(saying(FOX, at_3=fault), "the", num_beams=3)
        assert got.ended.stop.reason is StopReason.ERROR_NUMERICAL
        assert "beam 0 at output position 3" in (got.ended.stop.message or "")
        assert (got.text, got.ended.num_tokens) == (" fox jumps over", 3)

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (torch.OutOfMemoryError("no room"), StopReason.ERROR_OUT_OF_MEMORY),
            (RuntimeError("a kernel failed"), StopReason.ERROR_INTERNAL),
        ],
    )
    def test_a_pass_that_fails(self, error: Exception, reason: StopReason) -> None:
        engine = Engine(saying(FOX, at_2=scripted.raises(error)), num_rows=2)
        engine.add(request(engine.checkpoint, "the", num_beams=3))
        engine.add(request(engine.checkpoint, "cat", sequence_id="other", max_tokens=2))
        got = told(drain(engine))
        assert (got["a"].ended.stop.reason, got["a"].text) == (reason, " fox jumps")
        assert got["a"].ended.passes.decode == 1  # the pass that failed is none
        assert got["other"].ended.stop.reason is StopReason.MAX_TOKENS


class TestResumption:
    """A second attempt searches again and tells what the first had not told."""

    @pytest.mark.parametrize("num_saved", range(9))
    def test_resumed_is_uninterrupted(self, tiny: Checkpoint, num_saved: int) -> None:
        whole = searched(tiny, ignore_eos=True)
        rest = searched(tiny, ignore_eos=True, generated=whole.token_ids[:num_saved])
        assert [without_times(t) for t in rest.tokens] == [without_times(t) for t in whole.tokens[num_saved:]]
        assert (rest.ended.stop, rest.ended.num_tokens, rest.ended.tail) == (
            whole.ended.stop,
            whole.ended.num_tokens,
            whole.ended.tail,
        )
        assert rest.beams == whole.beams
        assert rest.ended.passes == whole.ended.passes

    def test_after_an_end_token(self) -> None:
        checkpoint = saying(" brown fox", end=True)
        whole = searched(checkpoint, "the")
        rest = searched(checkpoint, "the", generated=whole.token_ids)
        assert (rest.tokens, rest.ended.stop, rest.beams) == ((), whole.ended.stop, whole.beams)

    def test_another_text_than_was_shown_is_an_error_and_takes_nothing_back(self) -> None:
        saved = ids(" cat is")
        got = searched(saying(FOX), "the", generated=saved)
        assert got.ended.stop.reason is StopReason.ERROR_INTERNAL
        assert "another text" in (got.ended.stop.message or "")
        assert (got.tokens, got.beams, got.ended.num_tokens) == ((), None, 2)

    def test_interrupted_while_it_searches_again(self) -> None:
        checkpoint = saying(FOX)
        engine = Engine(checkpoint)
        engine.add(request(checkpoint, "the", num_beams=3, generated=ids(" fox jumps over")))
        outputs = engine.step()
        engine.cancel("a")
        got = told([*outputs, *engine.step()])["a"]
        assert (got.tokens, got.beams, got.ended.num_tokens) == ((), None, 3)
        assert isinstance(got.ended, Ended)


def test_a_bias_at_the_limit_of_float32_leaves_numbers_that_json_has(tiny_llama: Checkpoint) -> None:
    got = run(tiny_llama, "the quick fox", num_beams=2, logit_bias={"5": 3e38}, max_tokens=4)
    event = Event("run", 1, 0, got.beams)
    assert Event.decode(event.encode()) == event
