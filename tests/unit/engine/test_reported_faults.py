"""Faults that users of similar programs reported, in controls and numbers. Texts and prompts: `test_field_faults`."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from models.errors import SettingError
from models.events import Event, StopReason
from models.sampling import Settings
from tests.fakes import checkpoints, scripted
from tests.fakes.engine_runs import assert_alike, drain, request, run, told
from tests.fakes.phrases import ids, saying
from tests.unit.engine_numbers.chi_square import p_value
from workers.engine import oracle
from workers.engine.checkpoint import Checkpoint
from workers.engine.engine import Engine
from workers.engine.logits.pipeline import Row, process
from workers.engine.sampler import pick_rows


class TestControls:
    """What a control means, and that it means so to its own run alone."""

    def test_top_k_off_above_and_at_the_vocabulary_beside_greedy_rows(self, tiny: Checkpoint) -> None:
        top_ks = {"above": 9_999_999, "at": tiny.info.vocab_size, "off": 0, "one": 1}
        runs: dict[str, dict[str, Any]] = {name: {"top_k": k} for name, k in top_ks.items()}
        runs["greedy"] = {"temperature": 0.0}
        engine = Engine(tiny, num_rows=len(runs))
        for name, settings in runs.items():
            engine.add(request(tiny, "the quick", sequence_id=name, max_tokens=8, **settings))
        got = told(drain(engine))
        assert got["above"].token_ids == got["at"].token_ids == got["off"].token_ids
        assert got["one"].token_ids == got["greedy"].token_ids != got["off"].token_ids
        for name, settings in runs.items():
            assert_alike(got[name], run(tiny, "the quick", max_tokens=8, **settings))

    @pytest.mark.parametrize(
        "settings",
        [{}, {"temperature": 0.1}, {"temperature": 2}, {"top_p": 0.1}, {"repetition_penalty": 1.5}],
        ids=str,
    )
    def test_the_raw_number_is_the_checkpoints_and_the_processed_one_follows_by_hand(
        self, small: Checkpoint, settings: dict[str, Any]
    ) -> None:
        prompt = small.encode("the cat the cat")
        logits = oracle.raw_logits(small, list(prompt)).astype(np.float64)
        raw = logits - np.log(np.exp(logits).sum())
        match settings:
            case {"temperature": t}:
                scores = logits / t
            case {"top_p": p}:
                order = np.argsort(-raw)
                num_kept = 1 + int((np.exp(raw[order]).cumsum() < p).sum())
                scores = np.where(np.isin(np.arange(raw.size), order[:num_kept]), logits, -np.inf)
            case {"repetition_penalty": r}:
                scores = np.array([z if i not in prompt else z / r if z > 0 else z * r for i, z in enumerate(logits)])
            case _:
                scores = logits
        (token,) = run(small, prompt, max_tokens=1, alternatives=100, **settings).tokens
        shown = sorted(token.candidates, key=lambda c: c.token_id)
        # Two float32 passes of unlike shapes, whose last bits are a matter of the processor.
        assert [c.raw_logprob for c in shown] == pytest.approx(raw.tolist(), abs=1e-5)
        mine = [-math.inf if c.logprob is None else c.logprob for c in shown]
        assert mine == pytest.approx((scores - np.log(np.exp(scores).sum())).tolist(), abs=1e-4)

    @pytest.mark.parametrize("scope", ["all", "output"])
    def test_the_penalty_of_a_repeated_prompt_has_the_scope_that_was_asked_for(
        self, small: Checkpoint, scope: str
    ) -> None:
        prompt = [*small.encode("cat cat cat")]
        logits = torch.from_numpy(oracle.raw_logits(small, prompt))[None]
        processor = RepetitionPenaltyLogitsProcessor(1.5, len(prompt) if scope == "output" else 0)
        change = processor(torch.tensor([prompt]), logits.clone()) - logits
        settings = {"repetition_penalty": 1.5, "repetition_scope": scope, "alternatives": 100}
        (token,) = run(small, prompt, max_tokens=1, **settings).tokens
        by_id = {c.token_id: c.penalty for c in token.candidates}
        assert [by_id[i] for i in range(len(by_id))] == pytest.approx(change[0].tolist(), abs=1e-6)
        assert any(by_id.values()) == (scope == "all")

    def test_a_penalty_of_one_changes_nothing_and_none_is_refused(self, small: Checkpoint) -> None:
        penalized, plain = (run(small, "cat cat", max_tokens=6, **s) for s in ({"repetition_penalty": 1.0}, {}))
        assert [t.candidates for t in penalized.tokens] == [t.candidates for t in plain.tokens]
        for value in (0, -1, 0.0):
            with pytest.raises(SettingError, match="repetition_penalty"):
                Settings.parse({"repetition_penalty": value})


class TestNumbers:
    """What no reader of the events may meet."""

    def test_impossible_tokens_are_null_in_strict_json(self) -> None:
        (cat,) = ids(" cat")
        checkpoint = saying(" cat jumps", at_0=scripted.gives_only(cat), at_1=scripted.gives_nan)
        got = run(checkpoint, "the", top_k=1, alternatives=5)
        assert (got.token_ids, got.ended.stop.reason) == ((cat,), StopReason.ERROR_NUMERICAL)
        for number, payload in enumerate([*got.tokens, got.ended]):
            strict(Event("run", 1, number, payload).encode())
        candidates = strict(Event("run", 1, 0, got.tokens[0]).encode())["payload"]["candidates"]
        impossible = [c for c in candidates if c["token_id"] != cat]
        assert len(impossible) == 4
        assert all(c["raw_logprob"] is c["logprob"] is None for c in impossible)

    @pytest.mark.parametrize("kind", ["llama", "gpt2"])
    def test_defaults_that_come_with_a_checkpoint_change_no_number(self, tmp_path: Path, kind: str) -> None:
        write = {"llama": checkpoints.write_llama, "gpt2": checkpoints.write_gpt2}[kind]
        folder = write(tmp_path / kind, initializer_range=0.02)
        defaults = json.loads((folder / "generation_config.json").read_text())
        plain = run(checkpoints.load(folder), "the", max_tokens=5)
        defaults |= {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1, "do_sample": False}
        (folder / "generation_config.json").write_text(json.dumps(defaults))
        checkpoint = checkpoints.load(folder)
        got = run(checkpoint, "the", max_tokens=5)
        assert [(t.raw_logprob, t.candidates) for t in got.tokens] == [
            (t.raw_logprob, t.candidates) for t in plain.tokens
        ]
        assert all((t.raw_logprob, t.kept) == (t.logprob, {}) for t in got.tokens)
        drawn = self.first_tokens(checkpoint, num_draws=5000)
        assert int((drawn > 0).sum()) > 50
        logits = torch.from_numpy(oracle.raw_logits(checkpoint, [*checkpoint.encode("the")]))
        assert p_value(drawn, logits.double().softmax(-1) * 5000) > 0.001

    def first_tokens(self, checkpoint: Checkpoint, *, num_draws: int) -> torch.Tensor:
        """How often each token comes first, over so many seeds with nothing set: (vocab,)."""
        prompt = [*checkpoint.encode("the")]
        rows = [Row(Settings(seed=seed), prompt, []) for seed in range(num_draws)]
        logits = torch.from_numpy(oracle.raw_logits(checkpoint, prompt)).expand(num_draws, -1)
        picks = pick_rows(process(logits, rows), rows, [0] * num_draws)
        return torch.bincount(picks, minlength=logits.shape[1]).double()


def strict(text: bytes) -> Any:
    """The value of a JSON text. Numbers that JSON does not have are refused."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)
