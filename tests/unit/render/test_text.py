"""Escaping and numbers as words."""

import math

import pytest

from app.render.text import (
    byte_size,
    clipped,
    count,
    decimal,
    esc,
    milliseconds,
    percent,
    percent_of,
    quoted,
    sendable,
    spelled,
)

HOSTILE = "</q><script>alert(1)</script>\"'&"


def test_quoted_is_inert() -> None:
    assert "<script" not in quoted(HOSTILE)
    assert quoted("<b>") == '<q class="dl-piece">&lt;b&gt;</q>'


def test_esc_covers_attributes() -> None:
    assert esc("\"'<>&") == "&quot;&#x27;&lt;&gt;&amp;"


def test_what_is_no_unicode_text_can_be_sent_all_the_same() -> None:
    assert sendable("a\ud800\0😀\udfff") == "a?\0😀?"
    assert esc("\ud83d<") == "?&lt;"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" city", " city"),
        ("a\nb\t", "a\\nb\\t"),
        ("\u200b", "\\u200b"),
        ("\x07", "\\x07"),
        ("😀", "😀"),
        ("\U000e0001", "\\U000e0001"),
        ("\ud800", "\\ud800"),
        ("\u202e", "\\u202e"),
    ],
)
def test_spelled_shows_what_cannot_be_seen(text: str, expected: str) -> None:
    assert spelled(text) == expected


def test_clipped_is_one_line_and_bounded() -> None:
    assert clipped("one\ntwo three", 7) == "one\\ntw…"
    assert clipped("short", 7) == "short"
    assert clipped("<i>" * 10, 4) == "&lt;i&gt;&lt;…"


@pytest.mark.parametrize(
    ("probability", "expected"),
    [(0.7731, "77.3 %"), (0.0052, "0.52 %"), (0.00001, "&lt;0.01 %"), (1.0, "100.0 %"), (0.0, "0 %")],
)
def test_percent(probability: float, expected: str) -> None:
    assert percent_of(probability) == expected
    if probability:
        assert percent(math.log(probability)) == expected


def test_units() -> None:
    assert [count(1, "token"), count(0, "token"), count(49152)] == ["1 token", "0 tokens", "49,152"]
    assert [milliseconds(None), milliseconds(3.21), milliseconds(142.4), milliseconds(12_300)] == [
        "–",
        "3.2 ms",
        "142 ms",
        "12.3 s",
    ]
    assert [byte_size(12), byte_size(46_080), byte_size(2_903_040)] == ["12 B", "46.1 kB", "2.9 MB"]


def test_decimals_have_a_real_minus_and_nothing_for_nothing() -> None:
    assert [decimal(-1.2345, 3), decimal(1.5, 1), decimal(1.5, 2, signed=True), decimal(None, 2)] == [
        "−1.234",
        "1.5",
        "+1.50",
        "",
    ]
