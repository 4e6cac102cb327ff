"""A network that says what a script says, with a real KV cache, and can go wrong at a chosen token.

The cache holds the ids that were seen, as its keys and values. The next token of the script is the one after the
longest beginning of the script that the seen ids end with, so a second attempt that is given the saved tokens goes on
in the same place. A prompt should therefore neither hold the script nor end with its first token.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast
from transformers.cache_utils import Cache

from models.presence import CheckpointInfo
from workers.engine.chat import template_source
from workers.engine.checkpoint import Checkpoint

Fault = Callable[[torch.Tensor], torch.Tensor]
"""Takes the logits (vocab,) of one step and gives what the network answers instead."""

_FORCED = 50.0  # far above the other logits (0) and above any noise


@dataclass(frozen=True)
class Script:
    """The tokens to say, and what goes wrong at which of them (0 for the first). After the last comes `then`."""

    token_ids: Sequence[int]
    faults: Mapping[int, Fault] = field(default_factory=dict)
    then: int | None = None  # default: the last token again


class ScriptedLM(torch.nn.Module):
    """Called as a causal language model is. A prompt's first token may choose a script of its own."""

    def __init__(self, script: Script, vocab_size: int, *, by_first_id: Mapping[int, Script] | None = None) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.script = script
        self.by_first_id = dict(by_first_id or {})
        self.num_positions: list[int] = []  # of each forward pass, in order
        self.num_rows: list[int] = []  # likewise

    def forward(self, input_ids: torch.Tensor, *, cache: Cache, logits_to_keep: int = 0, **kwargs: Any) -> Any:
        """`input_ids` (rows, positions) -> `.logits` (rows, positions to keep, vocab)."""
        self.num_positions.append(input_ids.shape[1])
        self.num_rows.append(input_ids.shape[0])
        new = input_ids[:, None, :, None].float()  # (rows, 1, positions, 1)
        keys, values = cache.update(new, new, 0)
        if not torch.equal(keys, values):
            raise AssertionError("the cache gave other values than keys")
        num_kept = logits_to_keep or input_ids.shape[1]
        return SimpleNamespace(logits=torch.stack([self._answer(row, num_kept) for row in keys[:, 0, :, 0].tolist()]))

    def _answer(self, row: list[float], num_kept: int) -> torch.Tensor:
        """(positions to keep, vocab) after the ids that one row of the cache holds."""
        seen = [int(i) for i in row]
        return torch.stack([self._logits(seen[: end + 1]) for end in range(len(seen) - num_kept, len(seen))])

    def _logits(self, seen: list[int]) -> torch.Tensor:
        script = self.by_first_id.get(seen[0], self.script)
        said = _num_said(seen, script.token_ids)
        then = script.token_ids[-1] if script.then is None else script.then
        logits = torch.zeros(self.vocab_size)
        logits[script.token_ids[said] if said < len(script.token_ids) else then] = _FORCED
        fault = script.faults.get(said)
        return fault(logits) if fault else logits


def scripted_checkpoint(
    tokenizer: PreTrainedTokenizerFast,
    script: Script,
    *,
    name: str = "scripted",
    context_length: int = 8192,
    by_first_id: Mapping[int, Script] | None = None,
) -> Checkpoint:
    """The script behind the interface of a loaded checkpoint."""
    network = ScriptedLM(script, len(tokenizer), by_first_id=by_first_id)
    template = template_source(tokenizer)
    end = () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
    info = CheckpointInfo(
        name=name,
        source="script",
        revision="",
        weights_digest="0" * 64,
        architecture="ScriptedLM",
        num_parameters=0,
        vocab_size=len(tokenizer),
        context_length=context_length,
        end_token_ids=end,
        bos_token_id=tokenizer.bos_token_id,
        adds_bos=bool(tokenizer("").input_ids),
        has_chat_template=tokenizer.chat_template is not None,
        num_layers=1,
        num_kv_heads=1,
        head_size=1,
        device="cpu",
        dtype="float32",
        tokenizer_digest="",
        chat_template_digest="" if template is None else template.digest,
        alone_because="its answers depend on all that a cache holds",
    )
    return Checkpoint.assemble(info, network, tokenizer)


def gives_nan(logits: torch.Tensor) -> torch.Tensor:
    """One number of the row is no number."""
    return logits.index_fill(0, torch.tensor([3]), float("nan"))


def gives_infinity(logits: torch.Tensor) -> torch.Tensor:
    """One number of the row is plus infinity."""
    return logits.index_fill(0, torch.tensor([3]), float("inf"))


def gives_nothing(logits: torch.Tensor) -> torch.Tensor:
    """Every token is impossible."""
    return torch.full_like(logits, float("-inf"))


def gives_only(token_id: int) -> Fault:
    """Every token but one is impossible."""
    return lambda logits: torch.full_like(logits, float("-inf")).index_fill(0, torch.tensor([token_id]), 0.0)


def raises(error: Exception) -> Fault:
    """The pass fails."""

    def fault(logits: torch.Tensor) -> torch.Tensor:
        raise error

    return fault


def sleeps(seconds: float) -> Fault:
    """The pass takes long."""

    def fault(logits: torch.Tensor) -> torch.Tensor:
        time.sleep(seconds)
        return logits

    return fault


def kills(logits: torch.Tensor) -> torch.Tensor:
    """The process dies as under the kernel's out-of-memory killer."""
    os.kill(os.getpid(), signal.SIGKILL)
    return logits


def every_step(fault: Fault, num_steps: int) -> dict[int, Fault]:
    """The same fault at each of the first `num_steps` tokens."""
    return dict.fromkeys(range(num_steps), fault)


def _num_said(seen: list[int], script: Sequence[int]) -> int:
    """How many tokens of the script were said: all of it, or the longest beginning that `seen` ends with."""
    whole = list(script)
    if any(seen[start : start + len(whole)] == whole for start in range(len(seen) - len(whole) + 1)):
        return len(whole)
    for number in range(min(len(seen), len(whole)), 0, -1):
        if whole[:number] == seen[-number:]:
            return number
    return 0
