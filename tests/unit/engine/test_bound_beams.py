"""A beam search under a constraint: every text tried, its account, its endings, dead ends, and resumption."""

import gc
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from models.beams import BeamsTraced
from models.events import Event, StopReason, TokenPicked
from models.sampling import Settings
from tests.fakes import checkpoints, scripted, tokenizers
from tests.fakes.bound import Bound
from tests.fakes.engine_runs import Told, assert_as_alone, request, run, told
from tests.fakes.phrases import EOS, ids, saying
from tests.unit.engine.test_constrained_runs import ENDLESS, SCHEMAS, WHOLE, check_schema_bound
from workers.engine.checkpoint import Checkpoint
from workers.engine.constraint import Matcher
from workers.engine.engine import Engine
from workers.engine.scoring import score

A, B, C, D, END = range(5)


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The tokens a, b, c, d and an end."""
    folder: Path = tmp_path_factory.mktemp("bound") / "letters"
    return checkpoints.load(checkpoints.write_llama(folder, tokenizers.letters(), vocab_size=5))


def searched(checkpoint: Checkpoint, prompt: Any, constraint: dict[str, Any], **settings: Any) -> Told:
    return run(checkpoint, prompt, constraint=constraint, **{"num_beams": 4, "max_tokens": 8, **settings})


def lineage(got: Told) -> BeamsTraced:
    """As it arrives, so that each number in it is one that JSON has."""
    assert got.beams is not None
    payload = Event.decode(Event("run", 1, 0, got.beams).encode()).payload
    assert payload == got.beams
    return got.beams


class TestEveryText:
    """Four letters and an end, of which every text that the constraint allows can be scored."""

    REGEXES = ("(ab|cd)*", "[a-d]{1,3}", "a*(b|cd)", "(a|b|ab|ba)(c|d)?", "[ab]?[cd]{2}", "(a|aa|aaa)")

    @pytest.mark.parametrize("ignore_eos", [False, True])
    @pytest.mark.parametrize("regex", REGEXES)
    def test_enough_beams_find_the_best_of_all(self, letters: Checkpoint, regex: str, ignore_eos: bool) -> None:
        """No more than 9 of these texts go on or end in one step of the two or three."""
        constraint = {"regex": regex}
        num_tokens = 2 if regex == "[a-d]{1,3}" else 3
        bound = Bound(letters, (A, B), constraint=constraint, ignore_eos=ignore_eos)
        world = bound.world(num_tokens)
        for penalty in (-1.0, 0.0, 1.0, 2.0):
            settings = {"num_beams": 16, "early_stopping": "never", "length_penalty": penalty, "ignore_eos": ignore_eos}
            got = searched(letters, (A, B), constraint, max_tokens=num_tokens, **settings)
            assert got.token_ids == world.best(penalty)
            assert lineage(got).sequence_score == pytest.approx(world.score(got.token_ids, penalty), abs=1e-5, rel=1e-6)

    @pytest.mark.parametrize("early_stopping", [True, False, "never"])
    @pytest.mark.parametrize("regex", REGEXES)
    def test_few_beams_find_what_a_slow_search_finds(
        self, letters: Checkpoint, regex: str, early_stopping: Any
    ) -> None:
        constraint = {"regex": regex}
        for prompt_ids in ((A, B), (C, C, D)):
            world = Bound(letters, prompt_ids, constraint=constraint).world(5)
            for num_beams, penalty in itertools.product((2, 3, 4), (0.0, 1.0, 2.0)):
                search = {"num_beams": num_beams, "early_stopping": early_stopping, "length_penalty": penalty}
                got = searched(letters, prompt_ids, constraint, max_tokens=5, **search)
                assert got.token_ids == world.search(num_beams, penalty, early_stopping)

    def test_every_spelling_counts(self, tiny: Checkpoint) -> None:
        constraint = {"choice": ["the fox", "the cat", "a"]}
        prompt_ids = tuple(tiny.encode("quick"))
        world = Bound(tiny, prompt_ids, constraint=constraint).world(7)
        got = searched(tiny, prompt_ids, constraint, num_beams=16, early_stopping="never")
        assert got.token_ids == world.best(1.0)
        assert got.text in constraint["choice"]


class TestAccount:
    def test_the_winners_tokens_are_those_of_a_score_of_its_text(self, tiny: Checkpoint) -> None:
        constraint = {"regex": "( the| fox| a){2,5}"}
        prompt_ids = tiny.encode("the quick")
        for changes in ({}, {"banned": [" fox"]}, {"min_tokens": 3}):
            got = searched(tiny, prompt_ids, constraint, **changes)
            settings = Settings.parse({"seed": 7, "constraint": constraint, **changes})
            scored = score(tiny, prompt_ids, got.token_ids, settings).tokens
            for mine, theirs in zip(got.tokens, scored, strict=True):
                assert (mine.raw_logprob, mine.logprob) == pytest.approx((theirs.raw_logprob, theirs.logprob), abs=1e-4)
                assert (mine.rank_processed, mine.kept) == (theirs.rank_processed, theirs.kept)
                assert mine.tax is not None
                assert theirs.tax is not None
                assert mine.tax.bits == pytest.approx(theirs.tax.bits, abs=1e-3)
                assert mine.tax.displaced == theirs.tax.displaced

    def test_a_score_adds_what_the_mask_leaves_as_it_is(self, tiny: Checkpoint) -> None:
        """As transformers, which does not make the allowed ones sum to 1 again."""
        got = searched(tiny, "the", {"regex": "[a-z ]*"}, length_penalty=2.0)
        total = sum(token.raw_logprob for token in got.tokens)
        assert lineage(got).sequence_score == pytest.approx(total / len(got.tokens) ** 2, abs=1e-5)

    def test_a_token_that_the_constraint_brings_back_is_told_as_such(self, letters: Checkpoint) -> None:
        got = searched(letters, (A, B), {"regex": "ab"}, banned=[A, B])
        assert got.token_ids == (A, B)
        assert [token.kept["constraint"] for token in got.tokens] == [1, 1]
        assert [token.logprob for token in got.tokens] == [0.0, 0.0]
        total = sum(token.raw_logprob for token in got.tokens)
        assert lineage(got).sequence_score == pytest.approx(total / 2, abs=1e-5)

    def test_beams_that_die_leave_no_matcher_behind(self, tiny_llama: Checkpoint) -> None:
        """One for each beam, the run's own, and the one before the first token."""
        gc.freeze()  # so that only what is made from here on is looked through
        try:
            engine, constraint = Engine(tiny_llama), {"regex": "[a-z ]{0,6}"}
            engine.add(request(tiny_llama, "the", num_beams=4, constraint=constraint, max_tokens=12))
            most = 0
            while engine.has_work:
                engine.step()
                most = max(most, num_matchers())
            assert (most, num_matchers()) == (4 + 2, 0)
        finally:
            gc.unfreeze()

    def test_what_shares_the_engine_changes_nothing(self, tiny: Checkpoint) -> None:
        cases: dict[str, dict[str, Any]] = {
            "a": {"num_beams": 4, "constraint": {"regex": "[a-z ]*"}},
            "b": {"num_beams": 16, "constraint": {"choice": ["the quick", "a cat"]}},
            "c": {"constraint": {"regex": "[a-f ]*"}},
        }
        assert_as_alone(tiny, "the cat", cases, max_tokens=8)


@pytest.mark.parametrize("index", range(len(SCHEMAS)))
def test_schema_bound_searches_validate_or_say_that_they_were_cut(tiny: Checkpoint, index: int) -> None:
    reasons = set()
    for num_beams, penalty in ((2, 1.0), (4, 0.0), (7, 1.0)):
        got = searched(
            tiny,
            "the cat",
            {"json_schema": SCHEMAS[index]},
            num_beams=num_beams,
            length_penalty=penalty,
            max_tokens=40,
        )
        check_schema_bound(got, SCHEMAS[index])
        lineage(got)
        reasons.add(got.ended.stop.reason)
    assert reasons & WHOLE or index in ENDLESS


@pytest.mark.checkpoint
def test_a_schema_bound_search_of_the_default_checkpoint(default_checkpoint: Checkpoint) -> None:
    schema = SCHEMAS[1]
    got = searched(default_checkpoint, "Is it so?\n", {"json_schema": schema}, num_beams=3, max_tokens=12)
    check_schema_bound(got, schema)
    assert got.ended.stop.reason in WHOLE


class TestEndings:
    def test_where_nothing_but_an_end_is_left_no_end_token_is_picked(self, tiny: Checkpoint) -> None:
        """Two choices and four beams: only what can be is there."""
        got = searched(tiny, "the", {"choice": ["xy", "zz"]})
        assert got.text in {"xy", "zz"}
        assert (got.ended.stop.reason, got.ended.stop.token_id) == (StopReason.CONSTRAINT_COMPLETE, None)
        assert all(token.visible for token in got.tokens)
        assert [(len(s.beams), len(s.finished), len(s.pruned)) for s in lineage(got).steps] == [(2, 0, 0), (0, 2, 0)]

    def test_a_choice_that_begins_another_ends_with_an_end_token_or_goes_on(self, tiny: Checkpoint) -> None:
        end = tiny.info.end_token_ids[0]
        for bias, text, reason in ((50, "a", StopReason.EOS), (-50, "ab", StopReason.CONSTRAINT_COMPLETE)):
            got = searched(tiny, "the", {"choice": ["a", "ab"]}, logit_bias={str(end): bias})
            assert (got.text, got.ended.stop.reason) == (text, reason)
            assert (got.token_ids[-1] == end) == (reason is StopReason.EOS)

    @pytest.mark.parametrize("number", [{}, {"max_tokens": 5}, {"ignore_eos": True}])
    def test_an_empty_output_is_complete_before_its_first_token(self, tiny: Checkpoint, number: dict[str, Any]) -> None:
        got = searched(tiny, "the", {"regex": ""}, **number)
        assert (got.token_ids, got.beams, got.ended.stop.reason) == ((), None, StopReason.CONSTRAINT_COMPLETE)

    def test_on_the_last_token_of_the_budget_complete_comes_first(self, tiny: Checkpoint) -> None:
        got = searched(tiny, "the", {"regex": "[xyz]{3}"}, max_tokens=3)
        assert (got.ended.stop.reason, got.ended.stop.also) == (
            StopReason.CONSTRAINT_COMPLETE,
            (StopReason.MAX_TOKENS,),
        )

    def test_a_budget_and_a_full_context_cut(self, tiny: Checkpoint) -> None:
        endless = {"json_schema": {"type": "string", "minLength": 500}}
        assert searched(tiny, "the", endless).ended.stop.reason is StopReason.MAX_TOKENS
        got = searched(tiny, tiny.encode("the") * 123, endless, max_tokens=50)
        assert (got.ended.stop.reason, len(got.tokens)) == (StopReason.CONTEXT_FULL, 5)

    def test_min_tokens_holds_back_the_end_tokens_alone(self, tiny: Checkpoint) -> None:
        bias = {str(tiny.info.end_token_ids[0]): 50.0}
        got = searched(tiny, "the", {"regex": "x*"}, min_tokens=5, logit_bias=bias)
        assert (got.text, got.ended.stop.reason) == ("xxxxx", StopReason.EOS)
        got = searched(tiny, "the", {"choice": ["xx"]}, min_tokens=6)
        assert (got.text, got.ended.stop.reason) == ("xx", StopReason.CONSTRAINT_COMPLETE)

    def test_with_ignored_ends_no_end_is_allowed(self, tiny: Checkpoint) -> None:
        bias = {str(tiny.info.end_token_ids[0]): 50.0}
        got = searched(tiny, "the", {"regex": "x{0,3}"}, ignore_eos=True, logit_bias=bias)
        assert (got.text, got.ended.stop.reason) == ("xxx", StopReason.CONSTRAINT_COMPLETE)

    def test_a_stop_token_is_allowed_as_text_alone(self, tiny: Checkpoint) -> None:
        stops = [tiny.tokenizer(letter).input_ids[0] for letter in "bz"]
        got = searched(tiny, "the", {"choice": ["abc"]}, stop_token_ids=stops)
        assert (got.text, got.ended.stop.reason) == ("a", StopReason.STOP_TOKEN)

    def test_cancelled_it_shows_its_best_beam_so_far(self, tiny: Checkpoint) -> None:
        engine = Engine(tiny)
        engine.add(request(tiny, "the", num_beams=4, constraint={"regex": "x{9}"}, max_tokens=20))
        outputs = [*engine.step(), *engine.step()]
        engine.cancel("a")
        got = told([*outputs, *engine.step()])["a"]
        assert (got.text, got.ended.stop.reason) == ("xx", StopReason.CANCELLED)


class TestDeadEnds:
    """No token of the letters' checkpoint has the byte z."""

    def test_a_beam_that_comes_to_one_is_given_up(self, letters: Checkpoint) -> None:
        """Alone, the likelier c d would have been followed to its end."""
        constraint = {"choice": ["cdz", "ab"]}
        alone = run(letters, (A, B), constraint=constraint, temperature=0.0, max_tokens=6)
        assert (alone.token_ids, alone.ended.stop.reason) == ((C, D), StopReason.ERROR_CHECKPOINT)
        got = searched(letters, (A, B), constraint)
        assert (got.token_ids, got.ended.stop.reason) == ((A, B), StopReason.CONSTRAINT_COMPLETE)
        assert [len(step.beams) for step in lineage(got).steps] == [2, 0]

    def test_what_has_finished_before_is_the_winner(self, letters: Checkpoint) -> None:
        got = searched(letters, (A, B), {"choice": ["cdz", "aaz", "b"]})
        assert (got.token_ids, got.ended.stop.reason) == ((B,), StopReason.CONSTRAINT_COMPLETE)
        assert lineage(got).num_steps == 2

    def test_where_all_do_the_search_ends_with_a_sentence_and_what_it_had(self, letters: Checkpoint) -> None:
        got = searched(letters, (A, B), {"choice": ["cdz", "aaz"]})
        assert (got.text, got.ended.stop.reason) == ("c", StopReason.ERROR_CHECKPOINT)
        assert "the constraint came to a dead end at output position 2" in (got.ended.stop.message or "")
        assert lineage(got).num_steps == 1

    def test_one_beam_whose_network_rules_out_what_it_may_say(self) -> None:
        """The script's own path meets the fault; the other beam says something else and is not troubled."""
        (only,) = ids("z")
        checkpoint = saying("the fox", at_1=scripted.gives_only(only))
        got = searched(checkpoint, "a", {"choice": ["the fox", "see"]})
        assert (got.text, got.ended.stop.reason) == ("see", StopReason.CONSTRAINT_COMPLETE)
        lineage(got)

    def test_all_beams_whose_network_rules_out_what_they_may_say(self) -> None:
        (only,) = ids("z")
        checkpoint = saying("the quick fox", at_0=scripted.gives_only(only))
        got = searched(checkpoint, "a", {"choice": ["the fox", "see"]})
        assert (got.tokens, got.beams, got.ended.stop.reason) == ((), None, StopReason.ERROR_CHECKPOINT)
        assert "no probability to any token that the constraint allows" in (got.ended.stop.message or "")


class TestResumption:
    @pytest.mark.parametrize("constraint", [{"regex": "[a-z ]*"}, {"json_schema": SCHEMAS[0]}, {"choice": ["the fox"]}])
    def test_resumed_is_uninterrupted(self, tiny: Checkpoint, constraint: dict[str, Any]) -> None:
        whole = searched(tiny, "the cat", constraint, max_tokens=10)
        for place in range(whole.ended.num_tokens + 1):
            rest = searched(tiny, "the cat", constraint, max_tokens=10, generated=whole.token_ids[:place])
            assert [without_times(t) for t in rest.tokens] == [without_times(t) for t in whole.tokens[place:]]
            assert (rest.ended.stop, rest.beams, rest.ended.passes) == (
                whole.ended.stop,
                whole.beams,
                whole.ended.passes,
            )


def num_matchers() -> int:
    gc.collect()
    return sum(type(thing) is Matcher for thing in gc.get_objects())


def without_times(token: TokenPicked) -> TokenPicked:
    return replace(token, elapsed_ms=0.0)


def test_an_end_token_is_likely_only_where_it_may_stand() -> None:
    """The script ends where the constraint does not."""
    got = searched(saying("the", end=True), "a", {"regex": "the( fox)?[.]"})
    assert EOS not in got.token_ids
    assert (got.text, got.ended.stop.reason) == ("the.", StopReason.CONSTRAINT_COMPLETE)
