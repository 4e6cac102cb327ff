"""The forward passes: the only code that runs the network, or the kernels that stand for it in a decode step.

A prefill computes a chunk of a prompt in one pass, a decode exactly one position; both leave keys and values in the
sequence's cache and give the raw logits of the last position. Where the tokens that follow are known already, one pass
gives the raw logits of all of them. A pass that fails raises a RunError for its own sequence; a fault of the
accelerator itself leaves as it is.
"""

import logging
from collections.abc import Sequence
from typing import Final

import torch

from models.errors import DeviceMemoryError, RunError
from workers.engine.cache import SequenceCache
from workers.engine.checkpoint import Checkpoint
from workers.engine.fused import MOST_POSITIONS, FusedNetwork
from workers.engine.ragged import Pass, RaggedNetwork

_logger = logging.getLogger(__name__)

_OUT_OF_MEMORY: Final = ("can't allocate memory", "out of memory")
_DEVICE_FAULTS: Final = ("CUDA error", "CUDA driver error", "cuDNN error", "CUBLAS_STATUS", "NCCL error")


class Runner:
    """Runs one checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._network = checkpoint.network
        self._device = torch.device(checkpoint.info.device)
        self._ragged = RaggedNetwork(self._network, self._device) if checkpoint.info.can_batch else None
        self._fused = FusedNetwork(self._network) if checkpoint.info.is_fused else None
        config = getattr(self._network, "config", None)
        width = getattr(config.get_text_config(), "hidden_size", 0) if config else 0
        info = checkpoint.info
        self.attention_share = 2 * info.num_layers * width / info.num_parameters if info.num_parameters else 0.0
        """What attending to one more position costs, as a share of all else that a pass computes for a position."""
        if self._fused is not None:
            self.attention_share *= 2  # as measured: our kernels' products of matrices are the quicker part of them

    def new_cache(self) -> SequenceCache:
        return SequenceCache(self._network)

    def prefill(self, cache: SequenceCache, token_ids: Sequence[int]) -> torch.Tensor:
        """Raw logits (1, vocab) float32 after the last of `token_ids`, in one pass. Raises RunError."""
        return self._forward(cache, [token_ids])

    def extend(self, cache: SequenceCache, token_ids: Sequence[int]) -> torch.Tensor:
        """Raw logits (positions, vocab) float32 after each of `token_ids`, in one pass over these. Raises RunError."""
        return self._forward(cache, [token_ids], num_kept=len(token_ids))

    def decode(self, cache: SequenceCache, token_id: int) -> torch.Tensor:
        """Raw logits (1, vocab) float32 after one more token, in a pass over that position alone. Raises RunError."""
        return self._forward(cache, [(token_id,)])

    def run(self, passes: Sequence[Pass]) -> list[torch.Tensor | RunError]:
        """A step of several sequences: for each the raw logits (rows x num_kept, vocab) float32 of its pass, or what
        went wrong with it. Together where the checkpoint can, one after the other where not.

        A pass that fails together is taken apart: the caches go back, and each sequence is run by itself.
        """
        parts: list[list[int]] = [[], []]
        for index, p in enumerate(passes):
            parts[self._is_fusable(p.num_positions)].append(index)
        answers: dict[int, torch.Tensor | RunError] = {}
        for indices, together in zip(parts, (self._ragged, self._fused), strict=True):
            chosen = [passes[index] for index in indices]
            answers.update(zip(indices, self._run_alike(chosen, together), strict=True))
        return [answers[index] for index in range(len(passes))]

    def _run_alike(
        self, passes: Sequence[Pass], together: RaggedNetwork | FusedNetwork | None
    ) -> Sequence[torch.Tensor | RunError]:
        if together is not None and len(passes) > 1:
            marks = [p.cache.mark() for p in passes]
            try:
                answers = together.run(passes)
            except Exception as exc:
                if is_device_fault(exc):
                    raise
                _logger.warning("a pass over %d sequences failed and is repeated one by one: %s", len(passes), exc)
                for p, mark in zip(passes, marks, strict=True):
                    p.cache.restore(mark)
            else:
                for p in passes:
                    p.cache.num_positions += p.num_positions
                return answers
        return [self._alone(p) for p in passes]

    def _is_fusable(self, num_positions: int) -> bool:
        return self._fused is not None and num_positions <= MOST_POSITIONS

    def _alone(self, single: Pass) -> torch.Tensor | RunError:
        try:
            return self._forward(single.cache, single.token_ids, num_kept=single.num_kept)
        except RunError as exc:
            return exc

    def uncached(self, token_ids: Sequence[int], *, num_kept: int) -> torch.Tensor:
        """Raw logits (num_kept, vocab) float32 after the last of `token_ids`, in one pass over all of them that neither
        reads nor fills a cache. Raises RunError."""
        return self._forward(None, [token_ids], num_kept=num_kept)

    def _forward(
        self, cache: SequenceCache | None, token_ids: Sequence[Sequence[int]], *, num_kept: int = 1
    ) -> torch.Tensor:
        """`token_ids`: the new ones of each row, equally many. The logits of each row's last `num_kept` positions."""
        start = cache.num_positions if cache else 0
        end = start + len(token_ids[0])
        try:
            if self._fused is not None and cache is not None and self._is_fusable(end - start):
                logits = self._fused.run([Pass(cache, token_ids, num_kept)])[0]
            else:
                logits = self._computed(cache, token_ids, num_kept)
        except Exception as exc:
            if is_device_fault(exc):
                raise
            if is_out_of_memory(exc):
                raise DeviceMemoryError(
                    f"the device has no memory for {end:,} positions; use a shorter prompt or fewer tokens"
                ) from exc
            raise RunError(f"the forward pass over position {start:,} failed: {exc}") from exc
        if cache:
            cache.num_positions = end
        return logits

    def _computed(self, cache: SequenceCache | None, token_ids: Sequence[Sequence[int]], num_kept: int) -> torch.Tensor:
        """What the network's own pass gives."""
        start = cache.num_positions if cache else 0
        cached = {"cache": cache.layers, "use_cache": True} if cache else {"use_cache": False}
        input_ids = torch.tensor(token_ids, device=self._device)  # (rows, positions)
        end = start + input_ids.shape[1]
        position_ids = torch.arange(start, end, device=self._device).expand(len(token_ids), -1)
        output = self._network(input_ids=input_ids, position_ids=position_ids, logits_to_keep=num_kept, **cached)
        logits: torch.Tensor = output.logits[:, -num_kept:].flatten(0, 1).float()  # (rows x num_kept, vocab)
        return logits


def is_out_of_memory(exc: Exception) -> bool:
    """On a CPU torch has no type of its own for it, and CUDA reports some of it as an error like any other."""
    if isinstance(exc, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(exc, RuntimeError) and any(words in str(exc) for words in _OUT_OF_MEMORY)


def is_device_fault(exc: Exception) -> bool:
    """Whether the accelerator has failed: from then on it answers every pass of this process with the same error."""
    is_accelerator = isinstance(exc, torch.AcceleratorError) or (
        isinstance(exc, RuntimeError) and any(words in str(exc) for words in _DEVICE_FAULTS)
    )
    return is_accelerator and not is_out_of_memory(exc)
