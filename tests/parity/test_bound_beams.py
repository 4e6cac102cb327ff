"""A beam search under a constraint against transformers' with `prefix_allowed_tokens_fn`: ids, score, beam indices."""

from typing import Any

import pytest

from tests.fakes.bound import Bound
from tests.parity.test_beams import SCORE_TOLERANCE, agree, by_transformers, by_us
from workers.engine.checkpoint import Checkpoint

NUM_TOKENS = 8
REGEXES = ["[a-z ]*", "( the| fox| a){1,4}", "[a-z]{3}( [a-z]{1,4})?", "(the|quick|brown)[ a-f]*[.!]"]


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("regex", REGEXES)
def test_ids_scores_and_beam_indices_are_theirs(tiny: Checkpoint, regex: str, early_stopping: Any) -> None:
    prompt_ids = tiny.encode("the quick brown fox")
    end = tiny.info.end_token_ids[0]
    bound = Bound(tiny, prompt_ids, constraint={"regex": regex})
    for num_beams, penalty, bias in ((2, 1.0, 6.0), (4, 0.0, 0.0), (4, 2.0, 6.0), (7, -1.0, 6.0)):
        search = {"num_beams": num_beams, "length_penalty": penalty, "early_stopping": early_stopping}
        likely = {"logit_bias": {str(end): bias}}
        got, told = by_us(tiny, prompt_ids, max_tokens=NUM_TOKENS, constraint={"regex": regex}, **search, **likely)
        options = {**search, **bound.as_options(), "sequence_bias": {(end,): bias}}
        agree(got, by_transformers(tiny, prompt_ids, max_new_tokens=NUM_TOKENS, **options))
        assert told.ended.stop.reason in {"eos", "constraint_complete", "max_tokens"}


@pytest.mark.parametrize("early_stopping", [False, "never"])
@pytest.mark.parametrize("num_beams", [2, 4, 16])
def test_a_list_that_is_shorter_than_the_beams(tiny: Checkpoint, num_beams: int, early_stopping: Any) -> None:
    """Where they run copies at -1e9; with `early_stopping` true these end the search, so it is not compared."""
    prompt_ids = tiny.encode("the")
    for choices in (["fox", "cat"], ["a", "ab", "abc"], ["the quick", "the fox", "a"]):
        constraint = {"choice": choices}
        search = {"num_beams": num_beams, "early_stopping": early_stopping, "length_penalty": 1.0}
        got, _ = by_us(tiny, prompt_ids, max_tokens=NUM_TOKENS, constraint=constraint, **search)
        options = Bound(tiny, prompt_ids, constraint=constraint).as_options()
        agree(got, by_transformers(tiny, prompt_ids, max_new_tokens=NUM_TOKENS, **search, **options))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
        ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}),
        ({"min_tokens": 5}, {"min_new_tokens": 5}),
    ],
    ids=["repetition", "ngrams", "min_tokens"],
)
def test_beside_the_other_stages(tiny: Checkpoint, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    prompt_ids = tiny.encode("the quick brown fox")
    constraint = {"regex": "[a-z ]*"}
    options = Bound(tiny, prompt_ids, constraint=constraint).as_options()
    got, _ = by_us(tiny, prompt_ids, max_tokens=NUM_TOKENS, num_beams=4, constraint=constraint, **ours)
    agree(got, by_transformers(tiny, prompt_ids, max_new_tokens=NUM_TOKENS, num_beams=4, **options, **theirs))


@pytest.mark.checkpoint
def test_the_default_checkpoint(default_checkpoint: Checkpoint) -> None:
    """The choices begin alike, so that all beams live on the words that tell them apart."""
    prompt_ids = default_checkpoint.encode("The capital of France is")
    names = ["Paris", "Paris, of course", "London", "Lyon", "the city of Paris", "the city of Lyon"]
    constraint = {"choice": [f" {name}" for name in names]}
    settings = {"num_beams": 4, "max_tokens": 12}
    got, told = by_us(default_checkpoint, prompt_ids, constraint=constraint, **settings)
    assert told.text in constraint["choice"]
    assert sum(token.raw_logprob for token in told.tokens) / len(told.tokens) == pytest.approx(
        got[1], abs=SCORE_TOLERANCE
    )
