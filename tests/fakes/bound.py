"""What a choice list or a regex allows, by the slow twin: as a world of texts, and as options of `generate()`."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from models.sampling import Settings
from tests.fakes.exhaustive import Text, World
from workers.engine.checkpoint import Checkpoint
from workers.engine.constraint_oracle import allowed_next
from workers.engine.oracle import raw_logits


class Bound:
    """A constraint over a prompt: what may follow each beginning of an output."""

    def __init__(self, checkpoint: Checkpoint, prompt_ids: Sequence[int], **settings: Any) -> None:
        self.checkpoint = checkpoint
        self.prompt_ids = tuple(prompt_ids)
        self.settings = Settings.parse({"seed": 7, **settings})
        self.end_ids = frozenset() if self.settings.ignore_eos else frozenset(checkpoint.info.end_token_ids)

    @functools.cache  # noqa: B019 - a test's own, which goes with it
    def allowed(self, output: Text) -> NDArray[np.bool_]:
        mask = allowed_next(self.checkpoint, self.prompt_ids, list(output), self.settings)
        assert mask is not None
        return mask

    def is_complete(self, output: Text) -> bool:
        return not any(i not in self.end_ids for i in np.flatnonzero(self.allowed(output)).tolist())

    def following(self, output: Text) -> NDArray[np.float64]:
        """Raw log-probabilities (vocab,) of what is allowed, from one pass over everything without a cache."""
        logits = torch.from_numpy(raw_logits(self.checkpoint, [*self.prompt_ids, *output])).double()
        return np.where(self.allowed(output), logits.log_softmax(-1).numpy(), -np.inf)

    def world(self, max_length: int) -> World:
        return World.of(
            self.following,
            vocab_size=self.checkpoint.info.vocab_size,
            max_length=max_length,
            end_ids=self.end_ids,
            is_complete=self.is_complete,
        )

    def as_options(self) -> dict[str, Any]:
        """The same for `generate()`, where an output without a rest ends as it does at a stopping criterion.

        It also follows outputs that broke the constraint, at a total of minus infinity, and must be told something.
        """

        def allowed_ids(_: int, ids: torch.Tensor) -> list[int]:
            output = self._output(ids)
            return np.flatnonzero(self.allowed(output)).tolist() or [0]

        def are_complete(ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            return torch.tensor([self.is_complete(self._output(row)) for row in ids])

        criteria: list[Callable[..., torch.Tensor]] = [are_complete]
        return {"prefix_allowed_tokens_fn": allowed_ids, "stopping_criteria": criteria}

    def _output(self, ids: torch.Tensor) -> Text:
        return tuple(ids[len(self.prompt_ids) :].tolist())
