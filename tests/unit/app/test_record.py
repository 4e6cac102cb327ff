"""Events of other versions."""

import orjson
import pytest

from app.record import read_event
from models.errors import DecodeLabError
from models.events import Event
from tests.fakes.events import beams


def test_an_event_that_only_a_newer_version_knows_is_told_as_that() -> None:
    event = Event("run", 1, 5, beams())
    assert read_event(event.encode()) == event
    newer = orjson.dumps({**orjson.loads(event.encode()), "type": "dreamed"})
    with pytest.raises(DecodeLabError, match=r"'dreamed'.*newer than this page"):
        read_event(newer)
