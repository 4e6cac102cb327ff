"""The constraint's slow, obvious twin for choice lists and regexes: after each beginning, every token is tried.

It shares the vocabulary with `constraint`, and nothing else.
"""

import numpy as np
import regex
from numpy.typing import NDArray

from models.constraint import Constraint
from models.sampling import Settings
from workers.engine.checkpoint import Checkpoint


def allowed_next(
    checkpoint: Checkpoint, prompt_ids: tuple[int, ...], output_ids: list[int], settings: Settings
) -> NDArray[np.bool_] | None:
    """Which tokens a choice list or a regex allows after `output_ids`: each one is tried. None without a constraint.

    A regex is read by the module `regex`, as a partial match; beyond ASCII it may have literal characters alone.
    """
    if settings.constraint is None:
        return None
    vocabulary, ends = checkpoint.vocabulary, checkpoint.info.end_token_ids
    mask = np.zeros(checkpoint.info.vocab_size, dtype=bool)
    before = b"".join(map(vocabulary.token_bytes, output_ids))
    begins_text = all(map(vocabulary.is_special, prompt_ids))
    lost = [vocabulary.num_opening_spaces(token_id) if begins_text else 0 for token_id in range(len(mask))]
    lead = b" " if any(lost) else b""
    for token_id in range(len(mask)):
        if token_id in ends:
            mask[token_id] = not settings.ignore_eos and _is_whole(before, lead, settings.constraint)
        elif lead and not output_ids and lost[token_id] != vocabulary.token_bytes(token_id).startswith(lead):
            continue  # of the one space that leads it would take away more, or nothing
        elif not vocabulary.is_special(token_id) and vocabulary.token_bytes(token_id):
            mask[token_id] = _is_beginning(before + vocabulary.token_bytes(token_id), lead, settings.constraint)
    return mask


def is_complete(checkpoint: Checkpoint, prompt_ids: tuple[int, ...], output_ids: list[int], settings: Settings) -> bool:
    mask = allowed_next(checkpoint, prompt_ids, output_ids, settings)
    return mask is not None and not any(i not in checkpoint.info.end_token_ids for i in np.flatnonzero(mask))


def _is_whole(data: bytes, lead: bytes, constraint: Constraint) -> bool:
    """Whether the bytes are `lead` and a text that the constraint accepts."""
    if not data.startswith(lead):
        return False
    text = data.removeprefix(lead).decode(errors="surrogateescape")
    if constraint.choice is not None:
        return text in constraint.choice
    return regex.fullmatch(constraint.regex, text) is not None


def _is_beginning(data: bytes, lead: bytes, constraint: Constraint) -> bool:
    """Whether the bytes begin `lead` and a text that the constraint accepts."""
    if not data.startswith(lead):
        return lead.startswith(data)
    data = data.removeprefix(lead)
    if constraint.choice is not None:
        return any(choice.encode().startswith(data) for choice in constraint.choice)
    text = data.decode(errors="ignore")
    tail = data.removeprefix(text.encode())  # of a character that has begun
    endings = (
        [c for c in constraint.regex or "" if c.encode().startswith(tail) and c.encode() != tail] if tail else [""]
    )
    return any(regex.fullmatch(constraint.regex, text + ending, partial=True) for ending in endings)
