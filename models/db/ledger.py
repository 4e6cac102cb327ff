"""A token event as a row and back, exactly: what is searched has columns, the rest is one compact blob."""

import zlib
from collections.abc import Sequence
from typing import Any, Final

import orjson

from models.db.runs import Token
from models.errors import EventError
from models.events import Candidate, Event, Others, Tax, TokenPicked

_NUM_PLAIN: Final = 7  # the fields of a Candidate that every one has

DAMAGE: Final = (EventError, ValueError, LookupError, TypeError, AttributeError, zlib.error)
"""What reading a row that was written whole, and is whole no longer, can raise."""


def token_row(event: Event) -> dict[str, Any]:
    """The column values of `models.db.runs.Token` for a token event."""
    token = event.payload
    if not isinstance(token, TokenPicked):
        raise TypeError(f"event {event.seq} of run {event.run_id} is no token event")
    return {
        "run_id": event.run_id,
        "position": token.position,
        "seq": event.seq,
        "attempt": event.attempt,
        "token_id": token.token_id,
        "piece": token.piece,
        "token_bytes": token.token_bytes,
        "text": token.text,
        "is_visible": token.visible,
        "is_withheld": token.withheld,
        "raw_logprob": token.raw_logprob,
        "logprob": token.logprob,
        "rank": token.rank,
        "entropy": token.entropy,
        "elapsed_ms": token.elapsed_ms,
        "ledger": _pack(token),
    }


def token_event(row: Token) -> Event:
    """The inverse of `token_row`."""
    # What a later version added stands at the end, and only where there is something to say.
    rank_processed, entropy_processed, kept, removed_mass, others, candidates, *tax = orjson.loads(
        zlib.decompress(row.ledger)
    )
    token = TokenPicked(
        position=row.position,
        token_id=row.token_id,
        piece=row.piece,
        token_bytes=row.token_bytes,
        text=row.text,
        visible=row.is_visible,
        withheld=row.is_withheld,
        raw_logprob=row.raw_logprob,
        logprob=row.logprob,
        rank=row.rank,
        rank_processed=rank_processed,
        entropy=row.entropy,
        entropy_processed=entropy_processed,
        kept=kept,
        removed_mass=removed_mass,
        candidates=tuple(_candidate(values) for values in candidates),
        others=Others(*others),
        elapsed_ms=row.elapsed_ms,
        tax=Tax(*tax[0]) if tax else None,
    )
    return Event(row.run_id, row.attempt, row.seq, token)


def _pack(token: TokenPicked) -> bytes:
    candidates = [_values(candidate) for candidate in token.candidates]
    others = [token.others.raw, token.others.processed]
    values = [token.rank_processed, token.entropy_processed, token.kept, token.removed_mass, others, candidates]
    if token.tax is not None:
        values.append([token.tax.bits, token.tax.displaced])
    return zlib.compress(orjson.dumps(values), 6)


def _values(c: Candidate) -> list[Any]:
    """An array in the order of Candidate's fields, because names repeated a hundred times would double the blob."""
    values = [c.token_id, c.piece, c.raw_logprob, c.logprob, c.removed_by, c.penalty, c.noise]
    return values if not c.num_causes else [*values, c.num_causes, *c.causes]


def _candidate(values: Sequence[Any]) -> Candidate:
    plain, caused = values[:_NUM_PLAIN], values[_NUM_PLAIN:]
    return Candidate(*plain, *((caused[0], tuple(caused[1:])) if caused else ()))
