"""What looks back at a text holds the numbers of a few positions at once, however long the text is."""

import weakref
from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from models.sampling import Settings
from tests.fakes.phrases import FOX, saying
from workers.engine.scoring import score
from workers.engine.what_if import what_if

EVERY_STAGE: Final = Settings.parse(
    {
        "seed": 3,
        "logit_bias": {"5": 1.5},
        "constraint": {"regex": "(.|\n)*"},
        "repetition_penalty": 1.1,
        "presence_penalty": 0.5,
        "no_repeat_ngram_size": 4000,
        "min_tokens": 3,
        "temperature": 1.5,
        "top_k": 300,
        "top_p": 0.99,
        "min_p": 0.001,
        "typical_p": 0.98,
    }
)


class LogitsHeld(TorchDispatchMode):
    """The most bytes that were held at once in tensors that have a number for each token of the vocabulary."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.most = 0
        self._vocab_size = vocab_size
        self._held: dict[int, int] = {}  # address -> bytes

    def __torch_dispatch__(self, operation: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.shape[-1:] == (self._vocab_size,):
                self._see(tensor.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        if storage.data_ptr() not in self._held:
            self._held[storage.data_ptr()] = storage.nbytes()
            weakref.finalize(storage, self._held.pop, storage.data_ptr(), None)
            self.most = max(self.most, sum(self._held.values()))


@pytest.mark.parametrize("look", [score, what_if])
def test_a_text_ten_times_as_long_takes_the_same_memory_for_logits(look: Callable[..., Any]) -> None:
    checkpoint = saying(FOX)
    most = []
    for num_tokens in (50, 500):
        with LogitsHeld(checkpoint.info.vocab_size) as held:
            look(checkpoint, [5] * 3, [6] * num_tokens, EVERY_STAGE)
        most.append(held.most)
    assert most[1] < 1.5 * most[0]  # what is freed late differs
    assert most[0] > 16 * 4 * checkpoint.info.vocab_size  # or nothing was seen
