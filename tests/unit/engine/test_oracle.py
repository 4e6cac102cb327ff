"""The engine tells the oracle's story: cached, with the fast stages, it picks what recomputing everything picks."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.events import StopReason
from models.sampling import DEFAULT_ORDER, Settings
from tests.fakes import checkpoints, tokenizers
from tests.fakes.any_settings import any_settings, any_stops
from tests.fakes.engine_runs import run
from workers.engine import oracle, scheduler
from workers.engine.checkpoint import Checkpoint

PROMPTS = ["the", "the quick brown fox", "there is a cat in", "a a a a a", "😀 naïve", "lazy dog and the lazy"]
CASES: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {},
    {"temperature": 0.3},
    {"temperature": 2.5, "top_k": 7},
    {"top_k": 1},
    {"top_p": 0.3},
    {"min_p": 0.2},
    {"typical_p": 0.4},
    {"repetition_penalty": 1.8},
    {"repetition_penalty": 1.8, "repetition_scope": "output"},
    {"presence_penalty": 1.5, "frequency_penalty": -0.5, "presence_frequency_scope": "all"},
    {"temperature": 0.0, "no_repeat_ngram_size": 2, "frequency_penalty": 2.0},
    {"no_repeat_ngram_size": 1, "max_tokens": 40},
    {"min_tokens": 5, "logit_bias": {"376": 40.0}},
    {"logit_bias": {"263": 30.0, "271": 29.0}, "banned": [263, " cat"]},
    {"temperature": 0.7, "top_k": 30, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.95, "repetition_penalty": 1.1},
    {"temperature": 3.0, "top_p": 0.7, "order": list(reversed([stage.value for stage in DEFAULT_ORDER]))},
    {"stop": ["e", "th"], "max_tokens": 60},
    {"stop": [" fox", "qu"], "include_stop": True, "max_tokens": 60},
    {"stop_token_ids": [263, 300], "logit_bias": {"300": 9.0}, "max_tokens": 60},
    {"max_tokens": 500},
    {"max_tokens": 500, "ignore_eos": True},
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("seed", [1, 2**64 - 1])
def test_the_story_is_the_same(tiny: Checkpoint, case: dict[str, Any], seed: int) -> None:
    prompt = PROMPTS[(CASES.index(case) + seed) % len(PROMPTS)]
    check(tiny, prompt, {"max_tokens": 15, "seed": seed, **case})


def test_the_cases_reach_every_ending(tiny_llama: Checkpoint) -> None:
    reasons = {
        oracle.tell(
            tiny_llama, tiny_llama.encode(PROMPTS[1]), Settings.parse({"max_tokens": 15, "seed": seed, **case})
        ).reason
        for case in CASES[-5:]
        for seed in range(3)
    }
    assert reasons >= {StopReason.EOS, StopReason.STOP_STRING, StopReason.STOP_TOKEN, StopReason.CONTEXT_FULL}


@pytest.mark.parametrize("seed", range(3))
def test_sentencepiece_text_is_the_same(tmp_path: Any, seed: int) -> None:
    # Without its byte tokens: where a run of them is no UTF-8, the tokenizer gives up its valid characters too.
    letters = {"banned": list(range(3, 259))}
    checkpoint = checkpoints.load(checkpoints.write_llama(tmp_path / "sp", tokenizers.metaspace()))
    for prompt in ("the quick", "", " a cat "):
        check(checkpoint, prompt, {"seed": seed, "max_tokens": 25, "ignore_eos": True, **letters})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(case=any_settings, ending=any_stops, prompt=st.sampled_from(PROMPTS))
def test_any_settings_tell_the_same_story(
    tiny: Checkpoint, case: dict[str, Any], ending: dict[str, Any], prompt: str
) -> None:
    check(tiny, prompt, {"max_tokens": 8, "seed": 3, **case, **ending})


def test_resumed_at_any_place_is_the_same_story(tiny: Checkpoint) -> None:
    case = {"seed": 11, "max_tokens": 20, "temperature": 1.3, "repetition_penalty": 1.2, "stop": ["zebra"]}
    whole = run(tiny, PROMPTS[1], **case)
    for place in random.Random(0).sample(range(1, whole.ended.num_tokens), 5):
        rest = run(tiny, PROMPTS[1], generated=whole.token_ids[:place], **case)
        assert whole.token_ids[:place] + rest.token_ids == whole.token_ids
        assert rest.ended.stop == whole.ended.stop
        for mine, theirs in zip(rest.tokens, whole.tokens[place:], strict=True):
            assert mine.raw_logprob == pytest.approx(theirs.raw_logprob, abs=1e-4)


def check(checkpoint: Checkpoint, prompt: str, case: dict[str, Any]) -> None:
    story = oracle.tell(checkpoint, checkpoint.encode(prompt), Settings.parse(case))
    got = run(checkpoint, prompt, **case)
    assert got.token_ids == story.token_ids
    assert got.ended.stop.reason is story.reason
    assert got.text == story.text
    for token, step in zip(got.tokens, story.steps, strict=True):
        assert token.raw_logprob == pytest.approx(step.raw_logprobs[token.token_id], abs=1e-4)
        assert token.logprob == pytest.approx(step.logprobs[token.token_id], abs=1e-3)
        for candidate in token.candidates:
            assert candidate.raw_logprob == pytest.approx(step.raw_logprobs[candidate.token_id], abs=1e-4)
            is_removed = bool(np.isneginf(step.logprobs[candidate.token_id]))
            assert (candidate.logprob is None) == (candidate.removed_by is not None) == is_removed


@pytest.mark.parametrize("case", CASES[:4], ids=str)
def test_a_prompt_in_chunks_is_the_whole_prompt(
    tiny: Checkpoint, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "CHUNK_POSITIONS", 3)
    prompt = PROMPTS[1] * 3
    check(tiny, prompt, {"max_tokens": 15, "seed": 7, **case})
    ended = run(tiny, prompt, max_tokens=2).ended
    num_positions = len(tiny.encode(prompt))
    assert (ended.passes.prefill, ended.passes.prompt_tokens_computed) == (-(-num_positions // 3), num_positions)
