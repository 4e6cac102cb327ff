"""The cache against no cache: one run's raw log-probabilities both ways.

Cached, as a run computes them: a prefill of the prompt, then one position a pass. Uncached: one pass over prompt and
output that neither reads nor fills a cache. In float32 on a CPU they agree to about 1e-5; in bfloat16 to 2e-2.

The uncached pass must be whole, so its logits are what bounds the check: at most MAX_POSITIONS output positions, the
first ones, are looked at, and the check says how many of how many.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from models.errors import SettingError
from models.examination import CacheCheck
from models.sampling import Settings
from workers.engine.checkpoint import Checkpoint
from workers.engine.logits.distribution import Distribution
from workers.engine.logits.pipeline import process
from workers.engine.replay import Pieces, Replay, RowsAt, finished
from workers.engine.runner import Runner
from workers.engine.sampler import pick

MAX_POSITIONS: Final = 256


def check_cache(
    checkpoint: Checkpoint,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    settings: Settings,
    *,
    num_given: int = 0,
    max_positions: int = MAX_POSITIONS,
) -> CacheCheck:
    """Compute the run with the tokens `output_ids` both ways. It takes a decode pass for each position that is checked.
    The first `num_given` are those that a branch begins with: they have numbers and no pick.

    Raises PromptError, SettingError, and RunError where a pass fails or its numbers are no distribution.
    """
    known = (checkpoint, prompt_ids, output_ids, settings)
    return finished(cache_check_pieces(*known, num_given=num_given, max_positions=max_positions))


@torch.inference_mode()
def cache_check_pieces(
    checkpoint: Checkpoint,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    settings: Settings,
    *,
    num_given: int = 0,
    max_positions: int = MAX_POSITIONS,
) -> Pieces[CacheCheck]:
    """`check_cache`, piece by piece; the pass without a cache, over prompt and checked positions, is one piece."""
    if settings.seed is None:
        raise SettingError("seed: it is missing; whether a pick changes depends on the noise of a seed", field="seed")
    replay = Replay(checkpoint, prompt_ids, output_ids)
    rows_at = replay.under(settings)
    num_checked = min(len(output_ids), max_positions)
    differences: list[float] = []
    changed: list[int] = []
    if num_checked:
        uncached = Runner(checkpoint).uncached([*prompt_ids, *output_ids[: num_checked - 1]], num_kept=num_checked)
        yield
        for span in replay.passes(num_checked, span_positions=1):  # as the run was computed
            yield
            if span is None:
                continue
            (position,) = span.positions
            without = uncached[position].unsqueeze(0)
            differences.append(_difference(span.logits, without))
            is_picked = position >= num_given
            if is_picked and _pick(span.logits, rows_at, position) != _pick(without, rows_at, position):
                changed.append(position)
    largest = max(differences, default=0.0)
    return CacheCheck(
        num_positions=len(output_ids),
        num_checked=num_checked,
        largest_difference=largest,
        largest_at=differences.index(largest) if differences else None,
        changed_picks=tuple(changed),
    )


def _difference(one: Tensor, other: Tensor) -> float:
    """The largest absolute difference of log-probabilities; a token that neither gives any has none."""
    difference = Distribution.of(one).logprobs - Distribution.of(other).logprobs
    return float(difference.nan_to_num(nan=0.0).abs().max())


def _pick(logits: Tensor, rows_at: RowsAt, position: int) -> int:
    rows = rows_at(range(position, position + 1))
    return int(pick(process(logits, rows), rows, [position]).token_ids)
