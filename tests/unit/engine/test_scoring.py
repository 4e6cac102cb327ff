"""Scoring a text: a generated run's own numbers, what is impossible and why, bounded passes, faults and cancels."""

import math
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.errors import PromptError, RunError, SettingError
from models.events import Ended, StopReason, TokenPicked
from models.sampling import Settings
from tests.fakes import scripted, tokenizers
from tests.fakes.any_settings import any_settings
from tests.fakes.engine_runs import Told, drain, request, run, told
from tests.fakes.phrases import FOX, ids, saying
from workers.engine import judge as judge_module
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine, Request
from workers.engine.scoring import Score, score
from workers.engine.what_if import what_if

PROMPTS = ["the", "the quick brown fox", "there is a cat in", "a a a a a", "lazy dog and the lazy"]
LAW = settings(
    max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def score_of(checkpoint: Checkpoint, prompt: str, given: list[int] | tuple[int, ...], **values: Any) -> Score:
    effective = Settings.parse({"seed": 7, **values})
    return score(checkpoint, checkpoint.encode(prompt), given, effective)


@LAW
@given(case=any_settings, prompt=st.sampled_from(PROMPTS))
def test_a_generated_run_has_its_own_log_probabilities(tiny: Checkpoint, case: dict[str, Any], prompt: str) -> None:
    case = {"seed": 3, "max_tokens": 12, **case}
    ran = run(tiny, prompt, **case)
    found = score_of(tiny, prompt, ran.token_ids, **case)
    assert len(found.tokens) == len(ran.tokens)
    for mine, theirs in zip(found.tokens, ran.tokens, strict=True):
        assert mine.raw_logprob == pytest.approx(theirs.raw_logprob, abs=1e-4)
        assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)
        same = ("position", "token_id", "piece", "token_bytes", "text", "visible", "withheld")
        assert [getattr(mine, name) for name in same] == [getattr(theirs, name) for name in same]
        # Numbers that are equal but for the pass's last bits may change places: by one, not by more.
        assert mine.rank == pytest.approx(theirs.rank, abs=1)
        assert mine.rank_processed == pytest.approx(theirs.rank_processed, abs=1)
        assert mine.kept == pytest.approx(theirs.kept, abs=1)
        assert (mine.tax is None) == (theirs.tax is None)
        if mine.tax is not None and theirs.tax is not None:
            assert mine.tax.bits == pytest.approx(theirs.tax.bits, abs=1e-4)
        others = {c.token_id: c for c in theirs.candidates}
        both = [(c, others[c.token_id]) for c in mine.candidates if c.token_id in others]
        assert len(both) >= len(others) - 1
        for one, other in both:
            assert one.raw_logprob == pytest.approx(other.raw_logprob, abs=1e-4)
            assert (one.removed_by, one.noise, one.causes) == (other.removed_by, other.noise, other.causes)
    assert found.figures.first_impossible is None


@LAW
@given(case=any_settings, given_ids=st.lists(st.integers(0, 400), min_size=1, max_size=40))
def test_every_token_is_possible_or_has_a_stage_and_shown_masses_sum_to_1(
    tiny: Checkpoint, case: dict[str, Any], given_ids: list[int]
) -> None:
    found = score_of(tiny, PROMPTS[1], given_ids, **case)
    assert [token.token_id for token in found.tokens] == given_ids
    for token in found.tokens:
        for which in ("raw", "processed"):
            name = "raw_logprob" if which == "raw" else "logprob"
            shown = [getattr(c, name) for c in token.candidates if getattr(c, name) is not None]
            assert math.fsum(map(math.exp, shown)) + getattr(token.others, which) == pytest.approx(1, abs=1e-6)
        (own,) = (c for c in token.candidates if c.token_id == token.token_id)
        assert own.logprob == token.logprob
        assert (own.logprob is None) == (own.removed_by is not None)
    gone = [token for token in found.tokens if token.logprob is None]
    impossible = found.figures.first_impossible
    assert (impossible is None) == (not gone)
    if impossible is not None:
        assert (impossible.position, impossible.token_id) == (gone[0].position, gone[0].token_id)
        assert found.figures.logprob is None


def test_the_figures_by_hand() -> None:
    """A network that gives every token but the scripted one e^0 and that one e^50 in 512 - 0 logits."""
    checkpoint = saying(FOX)
    vocab_size = checkpoint.info.vocab_size
    found = score_of(checkpoint, "the", ids(FOX))
    each = -math.log1p((vocab_size - 1) * math.exp(-50))
    assert found.figures.raw_logprob == pytest.approx(each * len(ids(FOX)), abs=1e-6)
    wrong = score_of(checkpoint, "the", [5])
    assert wrong.figures.raw_logprob == pytest.approx(-50, abs=1e-5)
    assert wrong.figures.raw_perplexity == pytest.approx(math.exp(50), rel=1e-4)
    assert (wrong.figures.logprob, wrong.figures.perplexity) == (
        wrong.figures.raw_logprob,
        wrong.figures.raw_perplexity,
    )


class TestImpossible:
    """The first token that the settings forbid, and the stage that does."""

    @pytest.mark.parametrize(
        ("values", "place", "stage"),
        [
            ({"banned": ids(" over")}, 2, "bias"),
            ({"no_repeat_ngram_size": 1}, 6, "no_repeat_ngram"),
            ({"top_k": 1}, 6, "top_k"),
            ({"top_p": 0.5}, 6, "top_p"),
            ({"min_p": 0.5}, 6, "min_p"),
            ({"temperature": 0.0}, 6, "temperature"),
            ({"temperature": 0.0, "banned": ids(" fox")}, 0, "bias"),
        ],
    )
    def test_its_place_and_stage(self, values: dict[str, Any], place: int, stage: str) -> None:
        found = score_of(saying(FOX), "the", [*ids(FOX), ids(" fox")[0]], **values)
        impossible = found.figures.first_impossible
        assert impossible is not None
        assert (impossible.position, impossible.stage) == (place, stage)
        assert (found.figures.logprob, found.figures.mean_logprob, found.figures.perplexity) == (None, None, None)
        assert found.figures.raw_perplexity is not None

    def test_greedy_gives_its_own_text_probability_1(self) -> None:
        figures = score_of(saying(FOX), "the", ids(FOX), temperature=0.0).figures
        assert (figures.logprob, figures.perplexity, figures.first_impossible) == (0.0, 1.0, None)

    def test_of_equals_greedy_takes_the_lowest_id(self) -> None:
        """After its script the network of this test is indifferent."""
        checkpoint = saying(" fox", at_1=lambda logits: torch.zeros_like(logits))
        assert score_of(checkpoint, "the", [*ids(" fox"), 0], temperature=0.0).figures.logprob == 0.0
        found = score_of(checkpoint, "the", [*ids(" fox"), 1], temperature=0.0)
        assert found.tokens[1].rank_processed == 1
        assert found.figures.first_impossible is not None


class TestPasses:
    """How much is computed at once."""

    def test_no_pass_and_no_batch_is_longer_than_a_chunk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        checkpoint = saying(FOX)
        sizes = []

        def spy(logits: torch.Tensor, rows: Any) -> Any:
            sizes.append(logits.shape[0])
            return process(logits, rows)

        process = judge_module.process
        monkeypatch.setattr(judge_module, "process", spy)
        found = score_of(checkpoint, "the quick", [5] * 100)
        assert len(found.tokens) == 100
        assert sizes == [1, *[16] * 6, 3]
        assert checkpoint.network.num_positions == [2, *[16] * 6, 3]
        passes = found.ended.passes
        assert (passes.prefill, passes.decode, passes.prompt_tokens_computed) == (8, 0, 2)
        assert found.ended.kv_positions == 2 + 99  # after the last token nothing is asked

    def test_one_token_needs_the_prompt_alone(self) -> None:
        checkpoint = saying(FOX)
        assert len(score_of(checkpoint, "the quick", [5]).tokens) == 1
        assert checkpoint.network.num_positions == [2]

    def test_stop_rules_have_no_part(self) -> None:
        end = saying(FOX).info.end_token_ids[0]
        given = [*ids(" fox jumps"), end, *ids(" over")]
        found = score_of(saying(FOX), "the", given, stop=["fox"], stop_token_ids=ids(" jumps"), max_tokens=1)
        assert [token.token_id for token in found.tokens] == given
        assert "".join(token.text for token in found.tokens) == " fox jumps over"
        assert [token.visible for token in found.tokens] == [True, True, False, True]

    def test_a_text_that_fills_the_context_fits(self) -> None:
        checkpoint = saying(FOX, context_length=8)
        assert len(score_of(checkpoint, "the quick", [5] * 6).tokens) == 6
        with pytest.raises(PromptError, match="the prompt has 2 tokens, the text 7, and scripted has room for 8"):
            score_of(checkpoint, "the quick", [5] * 7)

    def test_what_breaks_the_constraint_is_impossible_and_after_it_there_is_none(self) -> None:
        """FOX is six words; the constraint allows its first two, then `over`, and the text goes another way."""
        found = score_of(saying(FOX), "the", ids(FOX), constraint={"regex": " fox jumps the.*"})
        impossible = found.figures.first_impossible
        assert impossible is not None
        assert (impossible.position, impossible.piece, impossible.stage) == (2, " over", "constraint")
        assert [token.logprob is None for token in found.tokens] == [False, False, True, False, False, False]
        bits = [token.tax.bits for token in found.tokens if token.tax is not None]
        assert [number > 1 for number in bits] == [False, False, True, False, False, False]

    def test_the_tokens_before_a_dead_end_are_kept(self) -> None:
        """At the sixth position the network gives probability to one token alone, which the constraint forbids."""
        given_ids = ids("a" * 10)
        checkpoint = saying("a" * 10, at_5=scripted.gives_only(ids("b")[0]))
        engine = Engine(checkpoint)
        values = Settings.parse({"seed": 1, "constraint": {"regex": "a{12}"}})
        engine.add(Request.to_score("a", checkpoint.encode("the"), values, given=tuple(given_ids)))
        got = told(drain(engine))["a"]
        assert (got.ended.stop.reason, len(got.tokens)) == (StopReason.ERROR_CHECKPOINT, 5)

    def test_no_text_and_foreign_ids_are_refused(self, tiny_llama: Checkpoint) -> None:
        for given_ids in ([], [5, 512], [-1]):
            with pytest.raises(PromptError):
                score_of(tiny_llama, "the", given_ids)

    def test_a_given_text_is_not_searched_for(self, tiny_llama: Checkpoint) -> None:
        for look in (score, what_if):
            with pytest.raises(SettingError, match="num_beams: it is 4") as refused:
                look(tiny_llama, (5, 6), (7, 8), Settings.parse({"seed": 7, "num_beams": 4}))
            assert refused.value.field == "num_beams"


def scoring(checkpoint: Checkpoint, given_ids: list[int], *, generated: tuple[int, ...] = ()) -> Request:
    effective = Settings.parse({"seed": 7, "top_p": 0.9})
    return Request.to_score(
        "score", checkpoint.encode("the quick"), effective, given=tuple(given_ids), generated=generated
    )


class TestInTheEngine:
    """A score among runs, interrupted and resumed."""

    def test_a_stream_beside_it_goes_on(self, tiny_llama: Checkpoint) -> None:
        engine = Engine(tiny_llama, num_rows=2)
        engine.add(request(tiny_llama, "the", sequence_id="stream", max_tokens=20))
        engine.step()
        engine.add(scoring(tiny_llama, [5] * 100))
        alone = run(tiny_llama, "the", max_tokens=20)
        for _ in range(6):
            outputs = engine.step()
            assert sum(o.sequence_id == "stream" and isinstance(o.payload, TokenPicked) for o in outputs) == 1
        assert engine.num_active == 2
        rest = [o.payload.token_id for o in drain(engine) if o.sequence_id == "stream" and hasattr(o.payload, "rank")]
        assert tuple(rest) == alone.token_ids[7:]

    def test_a_cancel_is_obeyed_at_the_next_step(self, tiny_llama: Checkpoint) -> None:
        engine = Engine(tiny_llama)
        engine.add(scoring(tiny_llama, [5] * 100))
        outputs = [*engine.step(), *engine.step()]
        engine.cancel("score")
        outputs += engine.step()
        found = told(outputs)["score"]
        assert (found.ended.stop.reason, len(found.tokens)) == (StopReason.CANCELLED, 17)

    def test_resumed_at_any_place_it_is_the_same(self, tiny: Checkpoint) -> None:
        given_ids = [(7 * i) % 400 for i in range(60)]
        whole = scored(tiny, given_ids)
        for place in (1, 16, 17, 59, 60):
            rest = scored(tiny, given_ids, generated=tuple(given_ids[:place]))
            assert [t.token_id for t in rest.tokens] == given_ids[place:]
            assert rest.ended.stop == whole.ended.stop
            for mine, theirs in zip(rest.tokens, whole.tokens[place:], strict=True):
                assert mine.position == theirs.position
                assert mine.raw_logprob == pytest.approx(theirs.raw_logprob, abs=1e-4)

    def test_saved_tokens_of_another_text_are_refused(self, tiny_llama: Checkpoint) -> None:
        with pytest.raises(PromptError, match="saved tokens are not those of the text"):
            Engine(tiny_llama).add(scoring(tiny_llama, [5, 6, 7], generated=(5, 7)))

    @pytest.mark.parametrize("room", [8192, 2_000_000])
    def test_a_text_beyond_every_budget_is_refused_as_a_text(self, room: int) -> None:
        checkpoint = scripted.scripted_checkpoint(tokenizers.words(), scripted.Script([5]), context_length=room)
        with pytest.raises(PromptError, match=r"1,000,001.*shorten the text") as refused:
            Engine(checkpoint).add(scoring(checkpoint, [5] * 1_000_001))
        assert refused.value.field == "text"

    @pytest.mark.parametrize("fault", [scripted.gives_nan, scripted.gives_nothing, scripted.gives_only(5)])
    def test_the_tokens_before_a_fault_are_kept(self, fault: scripted.Fault) -> None:
        found = scored(saying(FOX, at_3=fault), ids(FOX))
        assert [t.token_id for t in found.tokens] == ids(FOX)[:3]
        assert found.ended.stop.reason is StopReason.ERROR_NUMERICAL
        with pytest.raises(RunError, match="output position 3"):
            score_of(saying(FOX, at_3=fault), "the", ids(FOX))


def scored(checkpoint: Checkpoint, given_ids: list[int], **options: Any) -> Told:
    engine = Engine(checkpoint)
    engine.add(scoring(checkpoint, given_ids, **options))
    outputs = drain(engine)
    assert isinstance(outputs[-1].payload, Ended)
    return told(outputs)["score"]


@pytest.mark.checkpoint
def test_a_run_of_the_default_checkpoint_has_its_own_log_probabilities(default_checkpoint: Checkpoint) -> None:
    values = {"max_tokens": 8, "temperature": 0.8, "top_p": 0.95, "repetition_penalty": 1.1, "seed": 5}
    ran = run(default_checkpoint, "The capital of France is", **values)
    found = score_of(default_checkpoint, "The capital of France is", ran.token_ids, **values)
    for mine, theirs in zip(found.tokens, ran.tokens, strict=True):
        assert mine.raw_logprob == pytest.approx(theirs.raw_logprob, abs=1e-4)
        assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)
