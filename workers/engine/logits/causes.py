"""Where a penalty comes from: the places in prompt and output at which a token stood.

Places are counted over prompt + output, 0 for the prompt's first token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from models.events import MAX_CAUSES
from models.sampling import Scope, Settings, Stage
from workers.engine.logits.pipeline import active_stages
from workers.engine.logits.removal import completion_places
from workers.engine.logits.rows import Row


@dataclass(frozen=True, slots=True)
class Causes:
    """The places that count against one token."""

    num: int
    latest: tuple[int, ...]  # at most MAX_CAUSES of them, ascending


NO_CAUSES: Final = Causes(0, ())


def causes_of(row: Row, token_ids: Sequence[int], stages: Sequence[str | None]) -> list[Causes]:
    """For each of `token_ids`, with the stage that removed it or None: the places that count against it.

    Of a token that `no_repeat_ngram` removed these are the places where it would have repeated itself; of any other the
    places in the scope of the active penalties, whatever their sum came to.
    """
    if not _has_causes(row.settings):
        return [NO_CAUSES] * len(token_ids)
    active = active_stages(row)
    penalized = _penalized_from(row, active)
    is_repeating = Stage.NO_REPEAT_NGRAM in active
    if penalized is None and not is_repeating:
        return [NO_CAUSES] * len(token_ids)
    history = row.history(Scope.ALL)
    counted = np.arange(history.size if penalized is None else penalized, history.size)
    counted = counted[np.isin(history[counted], token_ids)]  # few, however long the history
    repeated = completion_places(history, row.settings.no_repeat_ngram_size) if is_repeating else counted[:0]
    found = []
    for token_id, stage in zip(token_ids, stages, strict=True):
        places = repeated if stage == Stage.NO_REPEAT_NGRAM else counted
        mine = places[history[places] == token_id]
        found.append(Causes(mine.size, tuple(mine[-MAX_CAUSES:].tolist())) if mine.size else NO_CAUSES)
    return found


def _has_causes(settings: Settings) -> bool:
    """Whether any stage that looks at what was there may be active: a quick answer for most rows."""
    is_neutral = settings.repetition_penalty == 1 and settings.presence_penalty == 0 == settings.frequency_penalty
    return not is_neutral or settings.no_repeat_ngram_size > 0


def _penalized_from(row: Row, active: Sequence[Stage]) -> int | None:
    """The first place that an active penalty counts; None where no penalty is active."""
    settings = row.settings
    scopes = {
        Stage.REPETITION: settings.repetition_scope,
        Stage.PRESENCE_FREQUENCY: settings.presence_frequency_scope,
    }
    counting = {scope for stage, scope in scopes.items() if stage in active}
    if not counting:
        return None
    return 0 if Scope.ALL in counting else len(row.prompt_ids)
