"""The beam search against transformers' `generate()`: token ids, score and beam indices, and against every text.

On tiny checkpoints with both kinds of positions, with the end token made likely so that beams finish at all lengths.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from models.beams import BeamsTraced
from models.sampling import DEFAULT_ORDER, Stage
from tests.fakes.engine_runs import Told, run
from tests.fakes.exhaustive import World
from tests.parity.reference import LOGPROB_TOLERANCE
from workers.engine.checkpoint import Checkpoint

NUM_TOKENS = 8
PROMPTS = ["the", "the quick brown fox", "see what runs from the lazy dog", "over and over and over"]
SCORE_TOLERANCE = LOGPROB_TOLERANCE  # a score is made of raw log-probabilities

Case = tuple[list[int], float, list[int]]


@torch.inference_mode()
def by_transformers(checkpoint: Checkpoint, prompt_ids: Sequence[int], **options: Any) -> Case:
    """Ids, score and beam indices of `generate()`."""
    ids = torch.tensor([list(prompt_ids)])
    output = checkpoint.network.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        **{"do_sample": False, "pad_token_id": 0, "eos_token_id": list(checkpoint.info.end_token_ids), **options},
        return_dict_in_generate=True,
        output_scores=True,
    )
    indices = [int(i) for i in output.beam_indices[0] if i >= 0]
    return [int(i) for i in output.sequences[0, ids.shape[1] :]], float(output.sequences_scores[0]), indices


def traced(got: Told) -> BeamsTraced:
    assert got.beams is not None
    return got.beams


def by_us(checkpoint: Checkpoint, prompt_ids: Sequence[int], **settings: Any) -> tuple[Case, Told]:
    got = run(checkpoint, prompt_ids, **settings)
    beams = traced(got)
    return (list(got.token_ids), beams.sequence_score, list(beams.beam_indices)), got


def agree(ours: Case, theirs: Case) -> None:
    assert ours[0] == theirs[0]
    assert ours[1] == pytest.approx(theirs[1], rel=SCORE_TOLERANCE, abs=SCORE_TOLERANCE)
    assert ours[2] == theirs[2]


def with_extras(name: str, checkpoint: Checkpoint, prompt_ids: Sequence[int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of ours and the same of `generate()`."""
    end = checkpoint.info.end_token_ids[0]
    likely = ({"logit_bias": {str(end): 6.0}}, {"sequence_bias": {(end,): 6.0}})
    match name:
        case "plain":
            return {}, {}
        case "ends":
            return likely
        case "repetition":
            return {"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}
        case "ngrams":
            return {"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}
        case "min_tokens":
            return {**likely[0], "min_tokens": 3}, {**likely[1], "min_new_tokens": 3}
        case "banned":
            banned = by_transformers(checkpoint, prompt_ids, num_beams=2, max_new_tokens=2)[0][:1]
            return {"banned": banned}, {"bad_words_ids": [banned]}
        case _:
            raise AssertionError(name)


EXTRAS = ["plain", "ends", "repetition", "ngrams", "min_tokens", "banned"]
CASES = list(itertools.product([2, 3, 4, 8, 16], [-1.0, 0.0, 1.0, 2.0], [False, True, "never"]))


@pytest.mark.parametrize("num_beams", [2, 3, 4, 8, 16])
def test_every_penalty_and_way_to_stop(tiny: Checkpoint, num_beams: int) -> None:
    """Prompts and extras take turns, so that each width meets all of them."""
    lengths = set()
    turns = itertools.cycle(itertools.product(EXTRAS, PROMPTS))
    for _, penalty, early in (case for case in CASES if case[0] == num_beams):
        extra, prompt = next(turns)
        lengths.add(agrees(tiny, prompt, extra, num_beams=num_beams, length_penalty=penalty, early_stopping=early))
    assert len(lengths) > 1


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("extra", EXTRAS)
def test_every_stage_and_prompt(tiny: Checkpoint, extra: str, early_stopping: Any) -> None:
    for prompt in PROMPTS[:2]:
        agrees(tiny, prompt, extra, num_beams=4, length_penalty=1.0, early_stopping=early_stopping)


def agrees(checkpoint: Checkpoint, prompt: str, extra: str, **search: Any) -> int:
    """Compare one search; the length of its winner."""
    prompt_ids = checkpoint.encode(prompt)
    ours, theirs = with_extras(extra, checkpoint, prompt_ids)
    got, _ = by_us(checkpoint, prompt_ids, max_tokens=NUM_TOKENS, **search, **ours)
    agree(got, by_transformers(checkpoint, prompt_ids, max_new_tokens=NUM_TOKENS, **search, **theirs))
    return len(got[0])


def test_several_end_tokens_and_stop_tokens(tiny: Checkpoint) -> None:
    """The caller's stop tokens are to transformers further end tokens."""
    prompt_ids = tiny.encode("the quick brown fox")
    stops = [7, 11, 13]
    biases = {token_id: 5.0 + token_id / 10 for token_id in stops}
    got, told = by_us(
        tiny,
        prompt_ids,
        num_beams=4,
        max_tokens=NUM_TOKENS,
        stop_token_ids=stops,
        logit_bias={str(i): bias for i, bias in biases.items()},
    )
    options: dict[str, Any] = {
        "eos_token_id": [*tiny.info.end_token_ids, *stops],
        "sequence_bias": {(i,): bias for i, bias in biases.items()},
    }
    agree(got, by_transformers(tiny, prompt_ids, num_beams=4, max_new_tokens=NUM_TOKENS, **options))
    assert got[0][-1] in stops
    assert told.ended.stop.reason == "stop_token"


def test_ignored_ends(tiny: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt_ids = tiny.encode("the")
    monkeypatch.setattr(tiny.network.generation_config, "eos_token_id", None)
    end = tiny.info.end_token_ids[0]
    got, _ = by_us(tiny, prompt_ids, num_beams=3, max_tokens=NUM_TOKENS, ignore_eos=True, logit_bias={str(end): 6.0})
    options = {"num_beams": 3, "max_new_tokens": NUM_TOKENS, "eos_token_id": None, "sequence_bias": {(end,): 6.0}}
    agree(got, by_transformers(tiny, prompt_ids, **options))
    assert end in got[0][:-1]


def test_a_full_context_is_the_longest_length(tiny: Checkpoint) -> None:
    """123 tokens of prompt leave 5 of the 128 positions."""
    prompt_ids = (tiny.encode("the quick brown fox jumps over the lazy dog") * 20)[:123]
    search: dict[str, Any] = {"num_beams": 3, "early_stopping": "never"}
    got, told = by_us(tiny, prompt_ids, max_tokens=50, ignore_eos=True, **search)
    agree(got, by_transformers(tiny, prompt_ids, max_new_tokens=5, eos_token_id=None, **search))
    assert (len(got[0]), told.ended.stop.reason) == (5, "context_full")


def test_the_stages_from_temperature_on_and_the_seed_change_nothing(tiny: Checkpoint) -> None:
    prompt_ids = tiny.encode("the quick brown fox")
    plain, _ = by_us(tiny, prompt_ids, num_beams=4, max_tokens=NUM_TOKENS)
    order = [Stage.TOP_K, Stage.TEMPERATURE]
    order += [stage for stage in DEFAULT_ORDER if stage not in order]
    for changes in ({"temperature": 0.0}, {"temperature": 3.0, "top_k": 1, "order": order, "seed": 5}, {"min_p": 0.9}):
        assert by_us(tiny, prompt_ids, num_beams=4, max_tokens=NUM_TOKENS, **changes)[0] == plain


@pytest.mark.checkpoint
@pytest.mark.parametrize("prompt", ["The capital of France is", "Once upon a time there was", "1, 2, 3, 4,"])
def test_the_default_checkpoint(default_checkpoint: Checkpoint, prompt: str) -> None:
    prompt_ids = default_checkpoint.encode(prompt)
    got, told = by_us(default_checkpoint, prompt_ids, num_beams=4, max_tokens=20)
    agree(got, by_transformers(default_checkpoint, prompt_ids, num_beams=4, max_new_tokens=20))
    total = sum(token.logprob for token in told.tokens)
    assert total / len(told.tokens) == pytest.approx(got[1], abs=1e-4)


# Eight tokens, so that every text can be scored.

VOCAB_SIZE = 8
END = 7


@pytest.fixture(scope="module")
def eight(tiny_llama: Checkpoint) -> Checkpoint:
    """A checkpoint of 8 tokens, of which the last ends a text."""
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.6,
        bos_token_id=None,
        eos_token_id=END,
    )
    with torch.random.fork_rng():
        torch.random.default_generator.manual_seed(3)
        network = LlamaForCausalLM(config).eval()
    info = replace(tiny_llama.info, vocab_size=VOCAB_SIZE, context_length=64, end_token_ids=(END,))
    return Checkpoint.assemble(info, network, tiny_llama.tokenizer)


def every_text(checkpoint: Checkpoint, prompt_ids: Sequence[int], max_length: int) -> World:
    """Each text's log-probability from one pass without a cache over all texts of its length."""
    table: dict[tuple[int, ...], np.ndarray] = {}
    with torch.inference_mode():
        for length in range(max_length):
            texts = list(itertools.product(range(VOCAB_SIZE), repeat=length))
            ids = torch.tensor([[*prompt_ids, *text] for text in texts])
            logits = checkpoint.network(input_ids=ids, use_cache=False, logits_to_keep=1).logits[:, -1]
            table |= dict(zip(texts, logits.double().log_softmax(-1).numpy(), strict=True))
    ends = frozenset({END})
    return World.of(table.__getitem__, vocab_size=VOCAB_SIZE, max_length=max_length, end_ids=ends)


@pytest.mark.parametrize("num_prompt", [2, 50])
def test_three_beams_over_eight_tokens(eight: Checkpoint, num_prompt: int) -> None:
    """The score is by the generated length alone, whatever the prompt's is; the search is that over every text."""
    prompt_ids = [i * i % (VOCAB_SIZE - 1) for i in range(num_prompt)]
    world = every_text(eight, prompt_ids, 4)
    for penalty, early_stopping in itertools.product([0.0, 1.0, 2.0], [True, False, "never"]):
        search: dict[str, Any] = {"num_beams": 3, "length_penalty": penalty, "early_stopping": early_stopping}
        got, _ = by_us(eight, prompt_ids, max_tokens=4, **search)
        text = tuple(got[0])
        assert text == world.search(3, penalty, early_stopping)
        assert got[1] == pytest.approx(world.score(text, penalty), abs=SCORE_TOLERANCE)
        agree(got, by_transformers(eight, prompt_ids, max_new_tokens=4, **search))


@pytest.mark.parametrize("num_prompt", [2, 50])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_enough_beams_find_the_best_text_of_all(eight: Checkpoint, num_prompt: int, penalty: float) -> None:
    """In two steps there are 7 texts to go on with, so 16 beams lose none."""
    prompt_ids = [i * i % (VOCAB_SIZE - 1) for i in range(num_prompt)]
    world = every_text(eight, prompt_ids, 2)
    search: dict[str, Any] = {"num_beams": 16, "length_penalty": penalty, "early_stopping": "never"}
    got, _ = by_us(eight, prompt_ids, max_tokens=2, **search)
    assert tuple(got[0]) == world.best(penalty)
    assert got[1] == pytest.approx(world.score(tuple(got[0]), penalty), abs=SCORE_TOLERANCE)
