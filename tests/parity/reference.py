"""What transformers itself answers: `generate()`, a plain forward pass, and the processors of the same controls."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from models.sampling import Settings
from workers.engine.checkpoint import Checkpoint

LOGPROB_TOLERANCE: Final = 1e-4
PROCESSED_TOLERANCE: Final = 1e-5


@torch.inference_mode()
def generated_by_transformers(checkpoint: Checkpoint, prompt_ids: Sequence[int], *, num_tokens: int) -> list[int]:
    """The greedy continuation, the end token included."""
    ids = torch.tensor([prompt_ids], device=checkpoint.info.device)
    room = checkpoint.info.context_length - len(prompt_ids)
    output = checkpoint.network.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=min(num_tokens, room),
        eos_token_id=list(checkpoint.info.end_token_ids),
        pad_token_id=0,
    )
    return [int(i) for i in output[0, len(prompt_ids) :]]


@torch.inference_mode()
def forward_logprobs(checkpoint: Checkpoint, token_ids: Sequence[int]) -> np.ndarray:
    """Natural log-probabilities (positions, vocab) of one pass without a cache."""
    logits = checkpoint.network(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0]
    return logprobs(logits)


def logprobs(logits: torch.Tensor) -> np.ndarray:
    """Natural log-probabilities in double precision, over the last axis."""
    return logits.double().log_softmax(-1).numpy()


def processors(settings: Settings) -> LogitsProcessorList:
    """transformers' own processors for the active controls among the ones that it has, in the default order."""
    active = [
        (settings.repetition_penalty != 1, lambda: RepetitionPenaltyLogitsProcessor(settings.repetition_penalty)),
        (settings.no_repeat_ngram_size > 0, lambda: NoRepeatNGramLogitsProcessor(settings.no_repeat_ngram_size)),
        (settings.temperature != 1, lambda: TemperatureLogitsWarper(settings.temperature)),
        (settings.top_k > 0, lambda: TopKLogitsWarper(settings.top_k)),
        (settings.top_p < 1, lambda: TopPLogitsWarper(settings.top_p)),
        (settings.min_p > 0, lambda: MinPLogitsWarper(settings.min_p)),
        (settings.typical_p < 1, lambda: TypicalLogitsWarper(settings.typical_p)),
    ]
    return LogitsProcessorList([build() for is_active, build in active if is_active])
