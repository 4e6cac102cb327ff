"""The cache changes nothing that matters, and where it would the check says where."""

from typing import Any

import pytest
import torch

from models.errors import SettingError
from models.sampling import Settings
from tests.fakes.engine_runs import run
from workers.engine.cache_check import check_cache
from workers.engine.checkpoint import Checkpoint
from workers.engine.runner import Runner

PROMPT = "the quick brown fox"
VALUES: dict[str, Any] = {"max_tokens": 30, "seed": 5, "temperature": 0.9, "repetition_penalty": 1.2}


def test_cached_is_uncached(tiny: Checkpoint) -> None:
    ran = run(tiny, PROMPT, **VALUES)
    found = check_cache(tiny, tiny.encode(PROMPT), ran.token_ids, Settings.parse(VALUES))
    assert (found.num_positions, found.num_checked) == (len(ran.token_ids), len(ran.token_ids))
    assert found.largest_difference < 1e-4
    assert found.changed_picks == ()


def test_what_the_cache_would_change_is_found(tiny: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if cached passes gave token 9 eighty nats at the run's 3rd position, and one nat more at its 5th."""
    ran = run(tiny, PROMPT, **VALUES)
    num_prompt = len(tiny.encode(PROMPT))
    honest = Runner.extend

    def extend(self: Runner, cache: Any, token_ids: Any) -> torch.Tensor:
        logits = honest(self, cache, token_ids)
        logits[0, 9] += {num_prompt + 2: 80.0, num_prompt + 4: 1.0}.get(cache.num_positions, 0.0)
        return logits

    monkeypatch.setattr(Runner, "extend", extend)
    found = check_cache(tiny, tiny.encode(PROMPT), ran.token_ids, Settings.parse(VALUES))
    assert found.largest_at == 2
    assert found.largest_difference > 40
    assert found.changed_picks == (2,)


def test_what_a_branch_was_given_is_no_pick(tiny: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if cached passes gave token 9 eighty nats at the 3rd and the 5th position, of which the 3rd was given."""
    ran = run(tiny, PROMPT, **VALUES)
    num_prompt = len(tiny.encode(PROMPT))
    honest = Runner.extend

    def extend(self: Runner, cache: Any, token_ids: Any) -> torch.Tensor:
        logits = honest(self, cache, token_ids)
        logits[0, 9] += 80.0 if cache.num_positions in (num_prompt + 2, num_prompt + 4) else 0.0
        return logits

    monkeypatch.setattr(Runner, "extend", extend)
    known = (tiny, tiny.encode(PROMPT), ran.token_ids, Settings.parse(VALUES))
    assert check_cache(*known).changed_picks == (2, 4)
    found = check_cache(*known, num_given=3)
    assert found.changed_picks == (4,)
    assert found.largest_at in (2, 4)  # its numbers are looked at all the same


def test_a_long_run_is_checked_at_its_beginning(tiny_llama: Checkpoint) -> None:
    ran = run(tiny_llama, PROMPT, **VALUES)
    found = check_cache(tiny_llama, tiny_llama.encode(PROMPT), ran.token_ids, Settings.parse(VALUES), max_positions=7)
    assert (found.num_positions, found.num_checked) == (len(ran.token_ids), 7)


def test_a_run_without_tokens_has_nothing_to_check(tiny_llama: Checkpoint) -> None:
    found = check_cache(tiny_llama, tiny_llama.encode(PROMPT), (), Settings(seed=1))
    assert (found.num_checked, found.largest_difference, found.largest_at) == (0, 0.0, None)


def test_a_seed_is_needed(tiny_llama: Checkpoint) -> None:
    with pytest.raises(SettingError, match="seed"):
        check_cache(tiny_llama, (5,), (6,), Settings())
