"""Coverage: how far each truncating control may be tightened before it forbids a text's own tokens.

At each position the text's token is held against the distribution that truncation starts from: the settings' with
`top_k`, `top_p`, `min_p` and `typical_p` neutral, so bias, bans, penalties and temperature are in it. With neutral
settings it is the raw one. Each control is then asked alone. With p the probabilities of that distribution and i the
token:

    top_k   number of tokens j with p[j] > p[i], + 1          equals of the k-th stay
    top_p   sum of p over the tokens that are taken before i  of equals the lowest id is taken first
    min_p   p[i] / max p

`top_p` must exceed that sum for the token to be kept, so the smallest one that keeps it is the next number: these
values are exact for the stages as they are, which compute in float32. At its value the token is kept, one step of
float32 (of float64 where top_p is closer to 1 than that) beyond it is removed.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import SettingError
from models.examination import Coverage, Reach
from models.sampling import Settings
from workers.engine.checkpoint import Checkpoint
from workers.engine.logits.pipeline import process
from workers.engine.logits.rows import row_counts, sorted_values
from workers.engine.replay import Pieces, Replay, finished


def coverage(
    checkpoint: Checkpoint, prompt_ids: Sequence[int], given_ids: Sequence[int], settings: Settings
) -> Coverage:
    """The reach of top_k, top_p and min_p over the text `given_ids` after `prompt_ids`.

    Raises SettingError for greedy settings, which truncate nothing; PromptError, and RunError where the checkpoint's
    numbers are no distribution.
    """
    return finished(coverage_pieces(checkpoint, prompt_ids, given_ids, settings))


@torch.inference_mode()
def coverage_pieces(
    checkpoint: Checkpoint, prompt_ids: Sequence[int], given_ids: Sequence[int], settings: Settings
) -> Pieces[Coverage]:
    """`coverage`, piece by piece."""
    if settings.is_greedy:
        raise SettingError(
            "temperature: at 0 the best token is taken and nothing is truncated, so there is no coverage; choose "
            "another temperature",
            field="temperature",
        )
    replay = Replay(checkpoint, prompt_ids, given_ids)
    rows_at = replay.under(settings.with_changes(top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0))
    reaches: list[Reach] = []
    for span in replay.passes(len(given_ids)):
        yield
        if span is None:
            continue
        scores = process(span.logits, rows_at(span.positions)).final.logits
        token_ids = [given_ids[position] for position in span.positions]
        chosen = torch.tensor(token_ids, device=scores.device).unsqueeze(1)  # (rows, 1)
        limits = zip(
            (scores.gather(1, chosen).flatten() > -torch.inf).tolist(),
            (row_counts(scores > scores.gather(1, chosen)) + 1).tolist(),
            _least_top_p(scores, chosen).tolist(),
            _largest_min_p(scores, chosen).tolist(),
            strict=True,
        )
        reaches += [
            Reach(position, token_id, k, top_p, min_p) if is_kept else Reach(position, token_id, None, None, None)
            for position, token_id, (is_kept, k, top_p, min_p) in zip(span.positions, token_ids, limits, strict=True)
        ]
    return Coverage(tuple(reaches))


def _least_top_p(scores: Tensor, chosen: Tensor) -> NDArray[np.float64]:
    """(rows,): the smallest top_p that keeps the tokens `chosen` (rows, 1).

    The stage removes from the least probable on while their mass together, cumulated in float32, is at most the
    float32 of 1 - p. So a token stays while that is below the mass up to and including its own.
    """
    own = scores.gather(1, chosen)
    ids = torch.arange(scores.shape[1], device=scores.device)
    is_removed_first = (scores < own) | ((scores == own) & (ids > chosen))  # of equals the highest id
    place = row_counts(is_removed_first).unsqueeze(1)
    mass = sorted_values(scores).softmax(dim=-1).cumsum(dim=-1)
    limit: NDArray[np.float32] = mass.gather(1, place.to(mass.device)).flatten().cpu().numpy()
    least = 1.0 - np.nextafter(limit, np.float32(0)).astype(np.float64)
    # Where 1 - p itself is rounded, in float64 or to float32, one step more.
    least = np.where((1.0 - least).astype(np.float32) < limit, least, np.nextafter(least, 2.0))
    is_last = (place.flatten() == scores.shape[1] - 1).cpu().numpy()  # the last one is never removed
    return np.where(is_last, 0.0, np.clip(least, 0.0, 1.0))


def _largest_min_p(scores: Tensor, chosen: Tensor) -> NDArray[np.float64]:
    """(rows,): the largest min_p that keeps the tokens `chosen` (rows, 1), whose float32 product with the largest
    probability is then at most their own."""
    probs = scores.softmax(dim=-1)
    own, best = (p.cpu().numpy() for p in (probs.gather(1, chosen), probs.amax(dim=-1, keepdim=True)))  # (rows, 1)
    ratio = own / best
    steps = [ratio]
    for towards in (np.float32(0), np.float32(2)):
        near = ratio
        for _ in range(2):  # the quotient and the product are each within half a step of the truth
            near = np.nextafter(near, towards)
            steps.append(near)
    tried = np.concatenate(steps, axis=1).astype(np.float32)  # (rows, steps)
    kept = np.where((tried * best <= own) & (tried <= 1), tried, np.float32(0))
    return np.asarray(kept.max(axis=1), dtype=np.float64)
