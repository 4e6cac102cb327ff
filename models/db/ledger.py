"""A token event as a row and back, exactly: what is searched has columns, the rest is one compact blob.

The blob is `models.db.columns` of the candidates behind what belongs to the token as a whole. Where they do not fit
there, and in rows of earlier versions, it is one compressed JSON array, which its first byte tells.
"""

import zlib
from collections.abc import Sequence
from typing import Any, Final

import orjson

from models.db.columns import UnfitError, pack_candidates, unpack_candidates
from models.db.runs import Token
from models.errors import EventError
from models.events import Candidate, Event, Others, Tax, TokenPicked

_COMPACT: Final = 1  # the first byte of a compact blob; that of compressed JSON is 0x78
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
    rank_processed, entropy_processed, kept, removed_mass, others, candidates, *tax = _unpack(row.ledger)
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
        candidates=candidates,
        others=Others(*others),
        elapsed_ms=row.elapsed_ms,
        tax=Tax(*tax[0]) if tax else None,
    )
    return Event(row.run_id, row.attempt, row.seq, token)


def _pack(token: TokenPicked) -> bytes:
    others = [token.others.raw, token.others.processed]
    values = [token.rank_processed, token.entropy_processed, token.kept, token.removed_mass, others]
    tax = [] if token.tax is None else [[token.tax.bits, token.tax.displaced]]
    try:
        texts, numbers = pack_candidates(token.candidates)
    except UnfitError:
        candidates = [_values(candidate) for candidate in token.candidates]
        return zlib.compress(orjson.dumps([*values, candidates, *tax]), 6)
    told = zlib.compress(orjson.dumps([*values, texts, *tax]), 9)
    return bytes([_COMPACT]) + len(told).to_bytes(4, "big") + told + numbers


def _unpack(ledger: bytes) -> list[Any]:
    """What `_pack` was given, the candidates as such. Raises what `DAMAGE` lists."""
    if ledger[0] != _COMPACT:
        values: list[Any] = orjson.loads(zlib.decompress(ledger))
        values[5] = tuple(_candidate(candidate) for candidate in values[5])
        return values
    end = 5 + int.from_bytes(ledger[1:5], "big")
    values = orjson.loads(zlib.decompress(ledger[5:end]))
    values[5] = unpack_candidates(values[5], ledger[end:])
    return values


def _values(c: Candidate) -> list[Any]:
    """An array in the order of Candidate's fields, because names repeated a hundred times would double the blob."""
    values = [c.token_id, c.piece, c.raw_logprob, c.logprob, c.removed_by, c.penalty, c.noise]
    return values if not c.num_causes else [*values, c.num_causes, *c.causes]


def _candidate(values: Sequence[Any]) -> Candidate:
    plain, caused = values[:_NUM_PLAIN], values[_NUM_PLAIN:]
    return Candidate(*plain, *((caused[0], tuple(caused[1:])) if caused else ()))
