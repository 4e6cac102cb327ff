"""The JSON of runs: the keys of the contract, strict values, and what an unfinished run says."""

import json
import math
from dataclasses import replace
from typing import Any

from app.run_json import comparison_json, from_events, run_json
from models.events import Event, StopReason
from models.sampling import Settings
from tests.fakes.events import beams
from tests.unit.app.runs import candidate, detail, ended, events, token

RUN_KEYS = [
    "id", "checkpoint", "prompt", "prompt_token_ids", "text", "settings", "seed", "stop", "tokens", "passes", "kv",
    "timing",
]  # fmt: skip
TOKEN_KEYS = [
    "position", "token_id", "piece", "visible", "raw_logprob", "logprob", "rank", "entropy", "candidates", "kept",
]  # fmt: skip


def strictly(value: Any) -> Any:
    """Through a strict encoder and back."""
    return json.loads(json.dumps(value, allow_nan=False))


def test_contract_keys_come_first_and_in_order() -> None:
    values = strictly(run_json(detail([token(0, 3), token(1, 4)])))
    assert list(values)[: len(RUN_KEYS)] == RUN_KEYS
    assert list(values["tokens"][0])[: len(TOKEN_KEYS)] == TOKEN_KEYS
    assert list(values["tokens"][0]["candidates"][0])[:5] == [
        "token_id", "piece", "raw_logprob", "logprob", "removed_by",
    ]  # fmt: skip
    assert set(values["stop"]) >= {"reason", "matched", "token_id", "withheld", "also"}
    assert set(values["passes"]) == {"prefill", "decode", "prompt_tokens_computed"}
    assert set(values["kv"]) == {"positions", "bytes"}
    assert set(values["timing"]) == {
        "queue_ms", "load_ms", "ttft_ms", "prefill_ms", "decode_ms", "tokens_per_s", "itl_ms",
    }  # fmt: skip


def test_values_are_those_of_the_events() -> None:
    run = detail([token(0, 3, text=" Paris"), token(1, 4, text=".")], settings=Settings(seed=2**64 - 1, top_p=0.9))
    values = strictly(run_json(run))
    assert values["text"] == " Paris."
    assert values["prompt_token_ids"] == [7, 8]
    assert values["settings"] == {**Settings().as_dict(), "seed": 2**64 - 1, "top_p": 0.9}
    assert values["seed"] == 2**64 - 1
    assert values["stop"]["reason"] == "max_tokens"
    assert values["passes"] == {"prefill": 1, "decode": 1, "prompt_tokens_computed": 2}
    assert values["kv"] == {"positions": 4, "bytes": 4096}
    assert values["timing"]["itl_ms"] == {"p50": 1.0, "p95": 2.0, "p99": 3.0}
    assert values["tokens"][0]["kept"] == {"top_p": 3}


def test_a_lineage_has_names() -> None:
    assert run_json(detail([token(0, 3)]))["beams"] is None
    history = [*events("r", [token(0, 3)])[:-1], Event("r", 1, 3, beams()), Event("r", 1, 4, ended(1))]
    values = strictly(run_json(from_events("r", "p", Settings(seed=1), checkpoint="tiny", events=history)))["beams"]
    assert (values["num_beams"], values["sequence_score"], values["beam_indices"]) == (2, -0.75, [0, 0, 1])
    (step,) = values["steps"]
    assert step["beams"][0] == {"parent": 0, "token_id": 100, "total": -0.25, "score": -0.25}
    assert step["finished"] == [{"parent": 0, "token_id": 2, "total": -0.75, "score": -0.75}]
    assert step["pruned"] == [{"parent": 0, "token_id": 9, "margin": 0.125}]


def test_minus_infinity_is_null_with_its_stage() -> None:
    removed = candidate(9, -7.5, None, removed_by="top_k")
    impossible = candidate(10, None, None)
    values = strictly(run_json(detail([token(0, 3, candidates=(removed, impossible))])))
    first, second = values["tokens"][0]["candidates"]
    assert (first["raw_logprob"], first["logprob"], first["removed_by"]) == (-7.5, None, "top_k")
    assert (second["raw_logprob"], second["logprob"]) == (None, None)


def test_unfinished_run_has_no_stop_yet() -> None:
    history = events("r", [token(0, 3, text="so")])[:-1]
    values = strictly(run_json(from_events("r", "p", Settings(seed=1), checkpoint="tiny", events=history)))
    assert values["stop"] is None
    assert values["status"] == "running"
    assert values["text"] == "so"
    assert values["kv"] == {"positions": None, "bytes": 2048}
    waiting = strictly(run_json(from_events("r", "p", Settings(seed=1), checkpoint="tiny", events=[])))
    assert (waiting["prompt_token_ids"], waiting["tokens"], waiting["checkpoint"]) == ([], [], "tiny")


def test_comparison_has_a_divergence_for_each_arm_that_parts() -> None:
    arms = [
        replace(detail([token(0, 1), token(1, last)]), arm_index=index, sample_index=0)
        for index, last in enumerate([2, 2, 3])
    ]
    values = strictly(comparison_json(arms))
    assert list(values)[:4] == ["arms", "baseline", "divergence", "prefill_passes"]
    assert values["baseline"] == 0
    assert [(d["arm"], d["position"]) for d in values["divergence"]] == [(2, 1)]
    assert values["prefill_passes"] == 3
    figures = values["figures"][0]
    assert figures["num_tokens"] == 2
    assert figures["raw_mean_logprob"] == figures["mean_logprob"]
    assert figures["raw_perplexity"] == figures["perplexity"] == math.exp(-figures["raw_mean_logprob"])
    assert figures["perplexity_processed"] == math.exp(-figures["mean_logprob_processed"])


def test_comparison_with_seeds_compares_equal_samples() -> None:
    texts = {(0, 0): 1, (0, 1): 2, (1, 0): 1, (1, 1): 3}
    runs = [replace(detail([token(0, i)]), arm_index=arm, sample_index=sample) for (arm, sample), i in texts.items()]
    values = strictly(comparison_json(runs))
    assert [d["arm"] for d in values["divergence"]] == [3]


def test_failed_run_says_why() -> None:
    history = events("r", [token(0, 3)], StopReason.ERROR_NUMERICAL)
    values = strictly(run_json(from_events("r", "p", Settings(seed=1), checkpoint="tiny", events=history)))
    assert (values["status"], values["stop"]["reason"]) == ("failed", "error:numerical")


def test_a_scored_text_has_its_figures_after_the_contract_of_a_run() -> None:
    tokens = [token(0, 3, raw_logprob=-1.0, logprob=-2.0), token(1, 4, raw_logprob=-3.0, logprob=-1.0)]
    values = strictly(run_json(replace(detail(tokens), given_text="ab")))
    assert list(values)[len(RUN_KEYS) : len(RUN_KEYS) + 3] == ["logprob", "perplexity", "first_impossible"]
    assert (values["logprob"], values["mean_logprob"], values["perplexity"]) == (-3.0, -1.5, math.exp(1.5))
    assert (values["raw_logprob"], values["raw_perplexity"], values["first_impossible"]) == (-4.0, math.exp(2), None)
    assert (values["kind"], values["given_text"]) == ("score", "ab")
    assert "perplexity" not in run_json(detail(tokens))


def test_an_impossible_token_is_null_with_its_stage() -> None:
    gone = token(1, 4, logprob=None, piece="b", candidates=(candidate(4, -1.0, None, removed_by="top_k"),))
    values = strictly(run_json(replace(detail([token(0, 3), gone]), given_text="ab")))
    assert values["first_impossible"] == {"position": 1, "token_id": 4, "piece": "b", "stage": "top_k"}
    assert (values["logprob"], values["mean_logprob"], values["perplexity"]) == (None, None, None)
    assert values["tokens"][1]["logprob"] is None


def test_a_perplexity_beyond_a_float_is_null() -> None:
    values = strictly(run_json(replace(detail([token(0, 3, raw_logprob=-1e6, logprob=0.0)]), given_text="a")))
    assert (values["raw_perplexity"], values["perplexity"]) == (None, 1.0)
