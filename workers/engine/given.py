"""The account of tokens that were given, not picked: each as if it had been picked at its position."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from models.errors import NumericalError
from models.events import Others
from models.sampling import Stage
from workers.engine.ledger import LedgerEntry, write
from workers.engine.logits.pipeline import Processed, Row
from workers.engine.sampler import Picks


def write_given(
    processed: Processed, token_ids: Sequence[int], rows: Sequence[Row], positions: Sequence[int]
) -> Iterator[LedgerEntry]:
    """One entry a row for its given token, in turn.

    A token that the settings make impossible has no processed log-probability, and its candidate names the stage: the
    one that removed it, or `temperature` where greedy decoding takes another.

    Raises NumericalError where the checkpoint itself gives a token minus infinity, which no entry can hold.
    """
    chosen = torch.from_numpy(np.asarray(token_ids, dtype=np.int64)).to(processed.raw.logits.device)
    entries = write(processed, Picks(chosen, tuple(positions)), rows)
    is_best = (processed.final.logits.argmax(dim=-1) == chosen).tolist()  # the first of equals, as greedy takes it
    for entry, row, position, is_greedys in zip(entries, rows, positions, is_best, strict=True):
        if not math.isfinite(entry.raw_logprob):
            raise NumericalError(
                f"the checkpoint gives token {entry.token_id} at output position {position} no probability at all; "
                "the tokens before it are kept"
            )
        is_passed_over = row.settings.is_greedy and not is_greedys and entry.logprob is not None
        yield _passed_over(entry) if is_passed_over else entry


def _passed_over(entry: LedgerEntry) -> LedgerEntry:
    """The entry of a token that greedy decoding would not take. Its mass goes to the others, so that all sums to 1."""
    candidates = tuple(
        c._replace(logprob=None, removed_by=Stage.TEMPERATURE.value) if c.token_id == entry.token_id else c
        for c in entry.candidates
    )
    mass = entry.others.processed + math.exp(entry.logprob or 0.0)
    others = Others(raw=entry.others.raw, processed=round(min(mass, 1.0), 6))
    return replace(entry, logprob=None, candidates=candidates, others=others)
