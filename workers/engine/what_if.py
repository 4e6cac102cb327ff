"""What-if: a saved run's own prefix under other settings, exactly, in one parallel pass.

At each position the new settings make their processed distribution of the saved prefix, and the noise of (seed,
position) picks from it. A fresh run with these settings and this seed goes the same way up to the first position where
that pick is not the saved token, or where one of the two runs has ended and the other has not. An ending counts: the
first difference is the first position at which the two lists of tokens differ, and where one list is the beginning of
the other that is the length of the shorter. A fresh run of a branch is that branch once more: it begins with the same
tokens, whatever the settings make of them, and differs at the earliest where it picks.

A parallel pass and a fresh run's own passes agree to about 1e-5 in float32, so a pick that two tokens contest more
closely than that can come out either way.
"""

import math
from collections.abc import Sequence

import torch

from models.errors import SettingError
from models.examination import Alternative, FirstDifference, WhatIf
from models.sampling import Settings
from workers.engine import sequence
from workers.engine.admission import admit
from workers.engine.checkpoint import Checkpoint
from workers.engine.logits.pipeline import process
from workers.engine.replay import Pieces, Replay, finished
from workers.engine.sampler import pick


def what_if(
    checkpoint: Checkpoint,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    settings: Settings,
    *,
    opening: Sequence[int] = (),
) -> WhatIf:
    """The saved run's tokens `output_ids`, its end token included, under `settings` with their seed. `opening`: of a
    branch, the tokens that its output was to begin with.

    Raises PromptError, SettingError, ConstraintError for an opening that the constraint does not allow, and RunError
    where the checkpoint's numbers are no distribution.
    """
    return finished(what_if_pieces(checkpoint, prompt_ids, output_ids, settings, opening=opening))


@torch.inference_mode()
def what_if_pieces(
    checkpoint: Checkpoint,
    prompt_ids: Sequence[int],
    output_ids: Sequence[int],
    settings: Settings,
    *,
    opening: Sequence[int] = (),
) -> Pieces[WhatIf]:
    """`what_if`, piece by piece."""
    if settings.seed is None:
        raise SettingError("seed: it is missing; a what-if needs the noise of a seed", field="seed")
    request = sequence.Request("fresh", tuple(prompt_ids), settings, opening=tuple(opening))
    fresh = _fresh_run(checkpoint, request, output_ids)
    replay = Replay(checkpoint, prompt_ids, output_ids)
    rows_at = replay.under(settings)
    picked_ids: list[int] = []
    logprobs: list[float | None] = []
    for span in replay.passes(len(output_ids) + (fresh.decision is None)):
        yield
        if span is None:
            continue
        rows = rows_at(span.positions)
        processed = process(span.logits, rows)
        picked_ids += pick(processed, rows, span.positions).token_ids.tolist()
        saved = [output_ids[n] if n < len(output_ids) else picked_ids[n] for n in span.positions]
        asked = torch.tensor(saved, device=span.logits.device).unsqueeze(1)  # (rows, 1)
        logprobs += _log_probabilities(processed.final.logprobs_at(asked).flatten().tolist())
    alternatives = tuple(
        Alternative(n, token_id, None if settings.is_greedy and picked != token_id else logprob, picked)
        for n, (token_id, logprob, picked) in enumerate(zip(output_ids, logprobs, picked_ids, strict=False))
    )
    taken_ids = [*opening[: len(picked_ids)], *picked_ids[len(opening) :]]
    return WhatIf(alternatives, _first_difference(output_ids, taken_ids, fresh))


def _fresh_run(checkpoint: Checkpoint, request: sequence.Request, output_ids: Sequence[int]) -> sequence.Sequence:
    """A fresh run as it stands after the saved tokens, or after those with which it ends or that it may take."""
    fresh = admit(checkpoint, request)
    fresh.check()  # a run of no tokens has ended already
    for token_id in output_ids:
        allowed = fresh.allowed_at(fresh.position)
        if fresh.decision is not None or (allowed is not None and not allowed[token_id]):
            break
        fresh.accept(token_id, None)
    return fresh


def _first_difference(
    output_ids: Sequence[int], taken_ids: Sequence[int], fresh: sequence.Sequence
) -> FirstDifference | None:
    num_alike = fresh.position if fresh.decision else len(output_ids)
    for position in range(num_alike):
        if taken_ids[position] != output_ids[position]:
            return FirstDifference(position, output_ids[position], taken_ids[position], None)
    if fresh.decision is None:
        return FirstDifference(fresh.position, None, taken_ids[fresh.position], None)
    if fresh.position < len(output_ids):
        return FirstDifference(fresh.position, output_ids[fresh.position], None, fresh.decision.reason)
    return None


def _log_probabilities(numbers: Sequence[float]) -> list[float | None]:
    """Rounded as the ledger's are; None for minus infinity."""
    return [round(number, 6) + 0.0 if number > -math.inf else None for number in numbers]
