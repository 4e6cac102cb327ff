"""The history's address: read, said again, and never refused."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.history_address import FILTER_NAMES, Asked, active, asked_of
from app.render.history import chips
from app.run_filter import NEWEST_FIRST, Bounds, RunFilter, Sort, SortKey
from models.events import RunKind, Status, StopReason

WHOLE = {
    "q": "two words", "checkpoint": "tiny", "stop": "error:internal", "status": "failed", "kind": "score",
    "starred": "no", "tag": "a b", "tmin": "0.25", "tmax": "2", "nmin": "3", "nmax": "40",
    "since": "2026-01-02", "until": "2026-01-03", "seed": "18446744073709551615",
    "top_k": "40", "top_p": "0.5..0.9", "min_p": "..0.1", "typical_p": "0.2", "repetition_penalty": "1.1..",
    "presence_penalty": "-0.5..-0.25", "frequency_penalty": "-1", "num_beams": "2..", "max_tokens": "1..64",
}  # fmt: skip


def test_every_parameter_is_read() -> None:
    asked = asked_of({**WHOLE, "sort": "speed", "order": "up"})
    assert asked.sort == Sort(SortKey.SPEED, is_ascending=True)
    assert asked.filters == RunFilter(
        text="two words", checkpoint="tiny", stop_reason=StopReason.ERROR_INTERNAL, status=Status.FAILED,
        kind=RunKind.SCORE, is_starred=False, tag="a b", min_temperature=0.25, max_temperature=2.0, min_tokens=3,
        max_tokens=40, since=datetime(2026, 1, 2, tzinfo=UTC), until=datetime(2026, 1, 4, tzinfo=UTC), seed=2**64 - 1,
        settings={
            "top_k": Bounds(40, 40), "top_p": Bounds(0.5, 0.9), "min_p": Bounds(high=0.1),
            "typical_p": Bounds(0.2, 0.2), "repetition_penalty": Bounds(1.1), "presence_penalty": Bounds(-0.5, -0.25),
            "frequency_penalty": Bounds(-1, -1), "num_beams": Bounds(2), "max_tokens": Bounds(1, 64),
        },
    )  # fmt: skip
    assert set(WHOLE) == set(FILTER_NAMES)


def test_active_filters_are_said_as_they_are_read() -> None:
    said = active(asked_of(WHOLE).filters)
    assert said == {name: value for name, value in WHOLE.items() if name != "q"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("stop", "x"), ("tmin", "nan"), ("tmax", "inf"), ("nmin", "-1"), ("nmin", "9" * 30), ("since", "soon"),
     ("starred", "maybe"), ("kind", ""), ("status", None), ("until", "9999-12-31"), ("seed", "-1"),
     ("seed", str(2**64)), ("seed", "1..2"), ("top_p", ".."), ("top_p", "x"), ("top_p", "0.5..x"), ("top_p", "nan.."),
     ("top_k", "1..2..3"), ("temperature", "1"), ("stop_token_ids", "1")],
)  # fmt: skip
def test_what_is_no_value_is_left_out(name: str, value: Any) -> None:
    assert asked_of({name: value}).filters == RunFilter()


@given(st.dictionaries(st.sampled_from([*FILTER_NAMES, "sort", "order", "other"]), st.text(max_size=40)))
def test_any_address_is_something(parameters: dict[str, str]) -> None:
    asked = asked_of(parameters)
    assert asked_of({**active(asked.filters), "q": asked.filters.text}).filters == asked.filters


@pytest.mark.parametrize(
    ("typed", "said"), [(" 0.50 ", "0.5"), ("1..1", "1"), ("0.1 .. 1e1", "0.1..10"), (".5", "0.5")]
)
def test_a_range_is_said_in_one_way(typed: str, said: str) -> None:
    assert active(asked_of({"top_p": typed}).filters) == {"top_p": said}


def test_chips_name_what_filters_and_take_it_away() -> None:
    html = chips({"tag": "<a>", "seed": "7", "top_k": "40", "top_p": "0.5..0.9", "min_p": "..0.1", "num_beams": "2.."})
    texts = re.findall(r'data-drop="(\w+)"[^>]*>([^<]*)<span', html)
    assert texts == [
        ("tag", "tag: &lt;a&gt;"), ("seed", "seed 7"), ("top_k", "top_k 40"), ("top_p", "top_p 0.5 to 0.9"),
        ("min_p", "min_p ≤ 0.1"), ("num_beams", "num_beams ≥ 2"),
    ]  # fmt: skip


def test_only_the_newest_of_all_or_of_what_is_starred_are_grouped() -> None:
    assert asked_of({}) == Asked(RunFilter(), NEWEST_FIRST)
    assert asked_of({}).is_grouped
    assert asked_of({"starred": "yes"}).is_grouped
    assert not asked_of({"starred": "no"}).is_grouped
    assert not asked_of({"starred": "yes", "order": "up"}).is_grouped
    assert not asked_of({"order": "up"}).is_grouped
    assert not asked_of({"nmin": "0"}).is_grouped
