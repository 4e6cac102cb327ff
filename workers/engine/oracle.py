"""The engine's slow, obvious twin: no cache, one sequence, everything computed anew at every step.

It shares with the engine the settings, the noise and the checkpoint, and none of the code between them, so that a test
may ask for equality. It is written after SEMANTICS: one plain function a stage, over one row, in NumPy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from models.events import StopReason
from models.sampling import Scope, Settings, Stage
from workers.engine.checkpoint import Checkpoint
from workers.engine.constraint_oracle import allowed_next, is_complete
from workers.engine.noise import gumbel_numpy

Logits = NDArray[np.float32]
LogProbs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a run a distribution is wanted."""

    settings: Settings
    prompt_ids: list[int]
    output_ids: list[int]
    banned_ids: frozenset[int] = frozenset()
    end_token_ids: frozenset[int] = frozenset()  # what min_tokens holds back
    allowed: NDArray[np.bool_] | None = None  # (vocab,): by the constraint, where there is one


@dataclass(frozen=True, slots=True)
class Step:
    """One output position: both distributions over the vocabulary, and the pick."""

    token_id: int
    raw_logprobs: LogProbs  # (vocab,)
    logprobs: LogProbs  # (vocab,), -inf where removed


@dataclass(frozen=True, slots=True)
class Story:
    """A whole run."""

    steps: tuple[Step, ...]
    reason: StopReason
    text: str

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(step.token_id for step in self.steps)


def tell(checkpoint: Checkpoint, prompt_ids: tuple[int, ...], settings: Settings) -> Story:
    """Run `settings` over a prompt until it stops. `settings.seed` must be set."""
    steps: list[Step] = []
    while True:
        output_ids = [step.token_id for step in steps]
        ending = _ending(checkpoint, prompt_ids, output_ids, settings)
        if ending is not None:
            return Story(tuple(steps), *ending)
        end_token_ids = frozenset(checkpoint.info.end_token_ids)
        allowed = allowed_next(checkpoint, prompt_ids, output_ids, settings)
        place = Place(settings, list(prompt_ids), output_ids, checkpoint.banned_ids(settings), end_token_ids, allowed)
        steps.append(_next_step(checkpoint, place))


@torch.inference_mode()
def raw_logits(checkpoint: Checkpoint, token_ids: list[int]) -> Logits:
    """The raw logits (vocab,) after `token_ids`, from one pass over all of them without a cache."""
    ids = torch.tensor([token_ids], device=checkpoint.info.device)
    logits: Logits = checkpoint.network(input_ids=ids, use_cache=False).logits[0, -1].float().cpu().numpy()
    return logits


def processed_logprobs(logits: Logits, place: Place) -> LogProbs:
    """The processed distribution (vocab,), -inf where removed."""
    return _log_softmax(final_logits(logits, place))


def final_logits(logits: Logits, place: Place) -> Logits:
    """The stages of SEMANTICS 2 in the order of the settings. At least one token stays."""
    scores = logits.copy()
    for stage in place.settings.order:
        if stage is Stage.TEMPERATURE and place.settings.temperature == 0:
            break
        before = scores.copy()
        if stage is Stage.CONSTRAINT and place.allowed is not None:
            before = _keep(logits, place.allowed)  # where nothing allowed is left, the best of all that is comes back
        if stage is Stage.BIAS:
            before = _biased(before, place)  # the best of all that is banned is so with its bias
        scores = _STAGES[stage](scores, place)
        if np.all(np.isneginf(scores)):
            best = int(np.argmax(before))
            scores[best] = before[best]
    return scores


def _next_step(checkpoint: Checkpoint, place: Place) -> Step:
    logits = raw_logits(checkpoint, [*place.prompt_ids, *place.output_ids])
    logprobs = processed_logprobs(logits, place)
    if place.settings.temperature == 0:
        token_id = int(np.argmax(logprobs))
    else:
        seed, ids = place.settings.seed or 0, np.arange(len(logprobs), dtype=np.int64)
        token_id = int(np.argmax(logprobs + gumbel_numpy(seed, len(place.output_ids), ids)))
    return Step(token_id, _log_softmax(logits), logprobs)


def _ending(
    checkpoint: Checkpoint, prompt_ids: tuple[int, ...], output_ids: list[int], settings: Settings
) -> tuple[StopReason, str] | None:
    """Why the run is over with these tokens, and its text; None where it goes on."""
    text = _text(checkpoint, prompt_ids, output_ids, settings)
    last = output_ids[-1] if output_ids else None
    if last in checkpoint.info.end_token_ids and not settings.ignore_eos:
        return StopReason.EOS, text
    if last in settings.stop_token_ids:
        return StopReason.STOP_TOKEN, text
    found = [(text.find(stop), -len(stop), stop) for stop in settings.stop if stop in text]
    if found:
        start, _, stop = min(found)
        return StopReason.STOP_STRING, text[: start + len(stop) * settings.include_stop]
    if settings.constraint is not None and is_complete(checkpoint, prompt_ids, output_ids, settings):
        return StopReason.CONSTRAINT_COMPLETE, text
    if len(output_ids) >= settings.max_tokens:
        return StopReason.MAX_TOKENS, text
    if len(prompt_ids) + len(output_ids) >= checkpoint.info.context_length:
        return StopReason.CONTEXT_FULL, text
    return None


def _text(checkpoint: Checkpoint, prompt_ids: tuple[int, ...], output_ids: list[int], settings: Settings) -> str:
    """What the output adds to the prompt's text."""
    silent = {*checkpoint.info.end_token_ids, *settings.stop_token_ids}
    visible = [i for i in output_ids if i not in silent]
    whole, prompt = (
        checkpoint.tokenizer.decode(part, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        for part in ([*prompt_ids, *visible], list(prompt_ids))
    )
    return str(whole[len(prompt) :])


def _bias(scores: Logits, place: Place) -> Logits:
    scores = _biased(scores, place)
    scores[list(place.banned_ids)] = -np.inf
    return scores


def _biased(scores: Logits, place: Place) -> Logits:
    for token_id, bias in place.settings.logit_bias.items():
        scores[token_id] += np.float32(bias)
    return scores


def _repetition(scores: Logits, place: Place) -> Logits:
    penalty = np.float32(place.settings.repetition_penalty)
    for token_id in set(_counted(place, place.settings.repetition_scope)):
        score = scores[token_id]
        scores[token_id] = score / penalty if score > 0 else score * penalty
    return scores


def _presence_frequency(scores: Logits, place: Place) -> Logits:
    settings = place.settings
    counted = _counted(place, settings.presence_frequency_scope)
    for token_id in set(counted):
        penalty = settings.presence_penalty + settings.frequency_penalty * counted.count(token_id)
        scores[token_id] -= np.float32(penalty)
    return scores


def _no_repeat_ngram(scores: Logits, place: Place) -> Logits:
    """Remove the ids that would repeat an n-gram of prompt + output."""
    size = place.settings.no_repeat_ngram_size
    token_ids = place.prompt_ids + place.output_ids
    if size and len(token_ids) >= size:
        end = token_ids[len(token_ids) - size + 1 :]
        for start in range(len(token_ids) - size + 1):
            if token_ids[start : start + size - 1] == end:
                scores[token_ids[start + size - 1]] = -np.inf
    return scores


def _min_tokens(scores: Logits, place: Place) -> Logits:
    if len(place.output_ids) < place.settings.min_tokens:
        scores[list(place.end_token_ids)] = -np.inf
    return scores


def _temperature(scores: Logits, place: Place) -> Logits:
    return scores / np.float32(place.settings.temperature)


def _top_k(scores: Logits, place: Place) -> Logits:
    if place.settings.top_k == 0:
        return scores
    threshold = np.sort(scores)[-min(place.settings.top_k, len(scores))]
    return _keep(scores, scores >= threshold)


def _top_p(scores: Logits, place: Place) -> Logits:
    probs = np.exp(_log_softmax(scores))
    return _keep(scores, _until_mass(np.argsort(-probs, kind="stable"), probs, place.settings.top_p))


def _min_p(scores: Logits, place: Place) -> Logits:
    probs = np.exp(_log_softmax(scores))
    return _keep(scores, np.asarray(probs >= place.settings.min_p * probs.max()))


def _typical(scores: Logits, place: Place) -> Logits:
    surprise = -_log_softmax(scores)
    probs = np.exp(-surprise)
    entropy = float(np.sum(probs[probs > 0] * surprise[probs > 0]))
    distance = np.where(np.isinf(surprise), np.inf, np.abs(surprise - entropy))
    taken = _until_mass(np.argsort(distance, kind="stable"), probs, place.settings.typical_p)
    return _keep(scores, distance <= distance[taken].max())  # equals of the last one stay


def _constraint(scores: Logits, place: Place) -> Logits:
    return scores if place.allowed is None else _keep(scores, place.allowed)


_STAGES: Final[dict[Stage, Callable[[Logits, Place], Logits]]] = {
    Stage.BIAS: _bias,
    Stage.CONSTRAINT: _constraint,
    Stage.REPETITION: _repetition,
    Stage.PRESENCE_FREQUENCY: _presence_frequency,
    Stage.NO_REPEAT_NGRAM: _no_repeat_ngram,
    Stage.MIN_TOKENS: _min_tokens,
    Stage.TEMPERATURE: _temperature,
    Stage.TOP_K: _top_k,
    Stage.TOP_P: _top_p,
    Stage.MIN_P: _min_p,
    Stage.TYPICAL: _typical,
}


def _counted(place: Place, scope: Scope) -> list[int]:
    return place.output_ids if scope is Scope.OUTPUT else place.prompt_ids + place.output_ids


def _keep(scores: Logits, kept: NDArray[np.bool_]) -> Logits:
    return np.where(kept, scores, np.float32(-np.inf))


def _until_mass(order: NDArray[np.int64], probs: LogProbs, mass: float) -> NDArray[np.bool_]:
    """The first tokens of `order` whose probabilities together reach `mass`, the one that reaches it included."""
    kept = np.ones(len(probs), dtype=bool)
    if mass < 1:
        reached = np.cumsum(probs[order]) >= mass
        kept[order[int(np.argmax(reached)) + 1 :]] = False
    return kept


def _log_softmax(scores: Logits) -> LogProbs:
    wide = scores.astype(np.float64)
    shifted = wide - wide.max()
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted))))
