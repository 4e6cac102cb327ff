"""Events: one encoder, one decoder, strict JSON, and the same bytes again from the tables."""

import json
import math
import random
from base64 import b64decode
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from models.db.base import escape_text, unescape_text
from models.db.ledger import token_event, token_row
from models.db.runs import Token
from models.db.session import Database
from models.errors import EventError
from models.events import (
    EVENT_TYPES,
    Candidate,
    Ended,
    Event,
    NearMiss,
    Resumed,
    Status,
    StopReason,
    StopRecord,
    Tax,
    Timing,
)
from models.sampling import Stage
from tests.fakes.events import beams, ended, prefilled, started, token
from tests.fakes.rows import new_run

NUMBERS = st.floats(-1e6, 0).map(lambda x: round(x, 6))
TEXTS = st.text(max_size=20)  # without lone surrogates
WHOLE_ENDING = ended(
    stop=StopRecord(
        StopReason.STOP_STRING,
        matched="END",
        span=(3, 6),
        withheld=1,
        also=(StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL),
        misses=(NearMiss("STOP", 2, 7), NearMiss("HALT", 0, None)),
        message="a sentence",
    ),
    timing=Timing(1.5, 0.0, 2.25, 3.0, 4.0, 50.0, {"p50": 1.0, "p95": 2.0, "p99": 3.0}),
)
OLD_LEDGER = b64decode(  # as versions before the columns wrote it
    "eJyLNtQx1DMy1alWKskviM9WsjIxqEVwDPQMDI2MTUxrdaINQKqA/Fid6GhDAwMdJYUSAyUdXQM9Q6A4iNLJK83JAanQASkFKjPX"
    "UYopNQCCD/NnNACVGumZQtRATdfRNYSKxMbGAgB+QiTR"
)
PAYLOADS = [started(), prefilled(), token(0), Resumed(17), beams(), ended(), WHOLE_ENDING]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: type(payload).__name__)
def test_what_is_decoded_is_what_was_encoded(payload: Any) -> None:
    event = Event("run", 3, 9, payload)
    assert Event.decode(event.encode()) == event
    assert Event.decode(event.encode()).encode() == event.encode()
    assert EVENT_TYPES[event.type] is type(payload)


def test_fields_of_a_newer_writer_are_ignored() -> None:
    values = orjson.loads(Event("run", 1, 0, WHOLE_ENDING).encode())
    values["color"] = "red"
    values["payload"]["color"] = "red"
    values["payload"]["stop"]["color"] = "red"
    assert Event.decode(orjson.dumps(values)).payload == WHOLE_ENDING


def test_an_event_that_only_a_newer_version_knows_is_told_as_that() -> None:
    newer = orjson.dumps({**orjson.loads(Event("run", 1, 5, beams()).encode()), "type": "dreamed"})
    with pytest.raises(EventError, match=r"'dreamed'.*newer, so update this one"):
        Event.decode(newer)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.data(), st.sampled_from(PAYLOADS), json_values)
def test_an_event_with_something_else_in_it_is_read_or_refused(data: st.DataObject, payload: Any, value: Any) -> None:
    """Anything, anywhere: another value, another name, nothing at all, or something more."""
    tree: Any = orjson.loads(Event("run", 1, 5, payload).encode())
    place: Any = tree
    while True:
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    match data.draw(st.sampled_from(["change", "remove", "rename", "add"])):
        case "change":
            place[key] = value
        case "remove":
            del place[key]
        case "rename" if isinstance(place, dict):
            place[data.draw(TEXTS)] = place.pop(key)
        case _:
            place.update({data.draw(TEXTS): value}) if isinstance(place, dict) else place.append(value)
    read_or_refuse(json.dumps(tree).encode())


@settings(deadline=None)
@given(st.sampled_from(PAYLOADS), st.integers(0, 400), st.integers(0, 30), st.binary(max_size=30))
def test_an_event_of_other_bytes_is_read_or_refused(payload: Any, start: int, num_lost: int, instead: bytes) -> None:
    data = Event("run", 1, 5, payload).encode()
    read_or_refuse(data[:start] + instead + data[start + num_lost :])
    read_or_refuse(data[:start])


UNREADABLE: list[bytes | str] = [
    "\ud800",
    b"\xff",
    b"",
    b"null",
    b"[" * 100_000,
    b'{"run_id":"r","attempt":1,"seq":0,"type":"prefilled"}',
    b'{"run_id":"r","attempt":1,"seq":0,"type":"prefilled","payload":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_001,
]


@pytest.mark.parametrize("data", UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_is_no_event_is_refused(data: bytes | str) -> None:
    with pytest.raises(EventError, match="cannot be read"):
        Event.decode(data)


def read_or_refuse(data: bytes) -> None:
    try:
        event = Event.decode(data)
    except EventError:
        return
    assert type(event.payload) is EVENT_TYPES[event.type]


def test_the_lineage_is_arrays_that_a_newer_writer_may_make_longer() -> None:
    values = orjson.loads(Event("run", 1, 0, beams()).encode())
    (step,) = values["payload"]["steps"]
    assert step == [[[0, 100, -0.25, -0.25], [0, 7, -1.5, -1.5]], [[0, 2, -0.75, -0.75]], [[0, 9, 0.125]]]
    step[2][0].append("more")
    step.append([])
    assert Event.decode(orjson.dumps(values)).payload == beams()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_json_has_no_numbers_that_json_does_not_have(value: float) -> None:
    assert b"NaN" not in Event("run", 1, 0, prefilled(prefill_ms=value)).encode()
    assert b"Infinity" not in Event("run", 1, 0, prefilled(prefill_ms=value)).encode()


@pytest.mark.parametrize("reason", StopReason)
def test_every_reason_has_its_terminal_state(reason: StopReason) -> None:
    assert reason.status.is_terminal
    failed = {"worker_lost", "error:numerical", "error:out_of_memory", "error:checkpoint", "error:internal"}
    expected = Status.FAILED if reason in failed else Status.CANCELLED if reason == "cancelled" else Status.FINISHED
    assert reason.status == expected
    assert isinstance(Event.decode(Event("run", 1, 0, ended(reason)).encode()).payload, Ended)


@given(st.text(alphabet=st.characters(codec=None)))
def test_any_text_is_stored_as_text_that_a_database_holds(text: str) -> None:
    stored = escape_text(text)
    assert "\0" not in stored
    stored.encode()
    assert unescape_text(stored) == text


@given(piece=TEXTS, data=st.binary(max_size=12), raw=NUMBERS, noise=st.floats(-20, 80).map(lambda x: round(x, 6)))
def test_a_token_becomes_a_row_and_the_same_bytes_again(piece: str, data: bytes, raw: float, noise: float) -> None:
    first, second = token(0).candidates
    candidates = (replace(first, piece=piece, noise=noise), replace(second, raw_logprob=raw))
    payload = token(0, piece=piece, text=piece, token_bytes=data, raw_logprob=raw, candidates=candidates)
    event = Event("run", 1, 2, payload)
    assert token_event(Token(**token_row(event))).encode() == event.encode()


@pytest.mark.parametrize("tax", [None, Tax(0.0, None), Tax(12.345678, 49151)])
def test_a_tax_becomes_a_row_and_the_same_bytes_again(tax: Tax | None) -> None:
    event = Event("run", 1, 2, token(0, tax=tax))
    assert token_event(Token(**token_row(event))).encode() == event.encode()


def test_events_and_rows_from_before_there_was_a_tax_are_read() -> None:
    event = Event("run", 1, 2, token(0))
    assert event.encode().count(b',"tax":null') == 1
    assert Event.decode(event.encode().replace(b',"tax":null', b"")) == event
    assert token_event(Token(**{**token_row(event), "ledger": OLD_LEDGER})) == event


def test_candidates_that_fit_no_columns_are_stored_all_the_same() -> None:
    first = token(0).candidates[0]
    for change in ({"noise": 1 / 3}, {"penalty": 3e38}, {"penalty": 1e308}, {"num_causes": 3, "causes": (1,)}):
        event = Event("run", 1, 2, token(0, candidates=(replace(first, **change),)))
        assert token_event(Token(**token_row(event))).encode() == event.encode()


@given(st.data())
def test_any_candidates_become_a_row_and_the_same_bytes_again(data: st.DataObject) -> None:
    numbers = st.none() | st.integers(-(10**12), 10**12).map(lambda n: n / 10**6)
    kinds = st.builds(
        Candidate,
        token_id=st.integers(0, 2**31),
        piece=TEXTS,
        raw_logprob=numbers,
        logprob=numbers,
        removed_by=st.none() | st.sampled_from(["top_k", "constraint"]),
        penalty=numbers.map(lambda n: n or 0.0),
        noise=numbers,
        num_causes=st.integers(8, 2**20),
        causes=st.lists(st.integers(0, 2**20), min_size=8, max_size=8).map(tuple),
    )
    event = Event("run", 1, 2, token(0, candidates=tuple(data.draw(st.lists(kinds, max_size=4)))))
    assert token_event(Token(**token_row(event))).encode() == event.encode()


@pytest.mark.parametrize("raw_logprob", [0.0, -1e-6, -123.456789, -0.1, -1 / 3])
def test_numbers_come_back_from_both_databases_bit_for_bit(database: Database, raw_logprob: float) -> None:
    event = Event("run", 1, 2, token(0, raw_logprob=raw_logprob, logprob=raw_logprob, piece="\0\N{GRINNING FACE}"))
    with database.write() as session:
        session.add(new_run(id="run"))
        session.flush()
        session.add(Token(**token_row(event)))
    with database.read() as session:
        row = session.scalars(select(Token)).one()
    assert token_event(row).encode() == event.encode()


def test_a_token_with_twenty_candidates_stays_small() -> None:
    """The promise is 1.5 KB a token at 20 alternatives: 20 that a constraint removed, 20 that it left, and the pick.

    Every control is on, and half of them stood in the text eight times.
    """
    generator = random.Random(3)
    raw = sorted((-generator.expovariate(0.3) for _ in range(41)), reverse=True)
    token_ids = generator.sample(range(200, 49152), 41)
    candidates = []
    for n, token_id in enumerate(token_ids):
        causes = tuple(sorted(generator.sample(range(2000), 8))) if n % 2 else ()
        noise = -math.log(-math.log(generator.random()))
        candidates.append(
            Candidate(
                token_id=token_id,
                piece=" " + "".join(generator.choices("etaoinshrdlu", k=generator.randint(1, 7))),
                raw_logprob=round(raw[n], 6),
                logprob=None if n < 20 else round(1.25 * raw[n] - generator.random(), 6),
                removed_by="constraint" if n < 20 else None,
                penalty=round(-generator.random(), 6) if causes else 0.0,
                noise=round(noise, 6),
                num_causes=2 * len(causes),
                causes=causes,
            )
        )
    kept = {stage.value: generator.randint(1, 40_000) for stage in Stage}
    whole = token(
        0,
        candidates=tuple(candidates),
        kept=kept,
        removed_mass={stage: round(generator.random(), 6) for stage in kept},
        tax=Tax(5.123456, 4321),
    )
    row = token_row(Event("0" * 36, 1, 2, whole))
    assert sum(len(v) if isinstance(v, str | bytes) else 8 for v in row.values()) < 1500
