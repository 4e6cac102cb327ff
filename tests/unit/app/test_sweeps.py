"""Sweeps: lists and ranges as people type them, the grid they span, and what is refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sweeps import Sweep, axes_of, grid, parse_sweep
from models.errors import LimitError, RefusedError, SettingError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.2, 0.7, 1.0", ("0.2", "0.7", "1.0")),
        ("0.2..1.0 step 0.2", ("0.2", "0.4", "0.6", "0.8", "1")),
        ("0.1 .. 0.5  step 0.1", ("0.1", "0.2", "0.3", "0.4", "0.5")),  # 0.1 + 0.1 + 0.1 is no 0.3 in binary
        ("0.2..1 step 0.3", ("0.2", "0.5", "0.8")),  # the end is a bound
        ("1..4", ("1", "2", "3", "4")),
        ("4..2", ("4", "3", "2")),
        ("1..0 step -0.5", ("1", "0.5", "0")),
        ("−1..1", ("-1", "0", "1")),
        ("0, 0.5..0.7 step 0.1, 2", ("0", "0.5", "0.6", "0.7", "2")),
        ("true, false, never", ("true", "false", "never")),
        ("3..3", ("3",)),
    ],
)
def test_values(text: str, values: tuple[str, ...]) -> None:
    assert parse_sweep("top_k", text) == Sweep("top_k", values)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("  ", "it has no values; write 0.2, 0.7 or 0.2..1.0 step 0.2"),
        ("0.2,,0.7", "there is no value between two commas, or at an end"),
        ("0.2, ", "there is no value between two commas, or at an end"),
        ("0.2..1.0", "'0.2..1.0' needs a step, as in 0.2..1.0 step 0.1"),
        ("0..1 step 0", "steps of 0 never lead from 0 to 1"),
        ("0..1 step -0.1", "steps of -0.1 never lead from 0 to 1"),
        ("0..hot step 1", "'hot' is not a number"),
        ("0..nan", "'nan' is not a number"),
        ("0..1e999999999", "'1e999999999' is not a number"),
        ("..", "'..' is no range; write 0.2..1.0 step 0.2"),
        ("0.7, 0.70", "0.70 is there twice (also as 0.7); leave one"),
        ("never, never", "never is there twice; leave one"),
    ],
)
def test_a_refusal_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(SettingError) as refused:
        parse_sweep("top_p", text)
    assert refused.value.message == f"sweep of top_p: {words}"
    assert refused.value.field == "top_p"


@pytest.mark.parametrize("text", ["0..64", "0..1 step 0.0000001", ", ".join(map(str, range(65)))])
def test_more_values_than_arms_are_refused_before_they_are_made(text: str) -> None:
    with pytest.raises(LimitError, match="more than 64 values"):
        parse_sweep("top_k", text)
    assert len(parse_sweep("top_k", "1..64").values) == 64


@given(st.text(alphabet="0123456789.,-+eE step..", max_size=30))
def test_any_text_is_values_or_a_refusal(text: str) -> None:
    with suppress(RefusedError):
        assert 1 <= len(parse_sweep("top_p", text).values) <= 64


def test_a_grid_goes_row_by_row() -> None:
    assert grid([Sweep("temperature", ("0.2", "1")), Sweep("top_p", ("0.5", "0.9"))]) == [
        {"temperature": "0.2", "top_p": "0.5"},
        {"temperature": "0.2", "top_p": "0.9"},
        {"temperature": "1", "top_p": "0.5"},
        {"temperature": "1", "top_p": "0.9"},
    ]


def test_a_grid_of_a_wrong_size_is_refused() -> None:
    nine = tuple(map(str, range(9)))
    with pytest.raises(LimitError, match="9 times 9 values are 81 arms; a comparison has at most 64"):
        grid([Sweep("top_k", nine), Sweep("top_p", nine)])
    with pytest.raises(LimitError, match="One value is one arm"):
        grid([Sweep("top_k", ("1",))])
    with pytest.raises(SettingError, match="top_k: it is given twice"):
        grid([Sweep("top_k", ("1",)), Sweep("top_k", ("2",))])
    with pytest.raises(LimitError, match="not 0"):
        grid([])


sweeps = st.builds(
    lambda rows, columns: [Sweep("temperature", tuple(rows)), Sweep("top_k", tuple(columns))],
    *[st.lists(st.integers(0, 50).map(str), min_size=2, max_size=8, unique=True)] * 2,
)


@given(sweeps)
def test_a_grid_is_found_again_in_its_arms(asked: list[Sweep]) -> None:
    arms = [{"min_p": "0", **arm} for arm in grid(asked)]
    assert axes_of(arms) == tuple(asked)
    assert axes_of([{"min_p": "0", **arm} for arm in grid(asked[:1])]) == (asked[0],)


def test_arms_that_are_no_grid_have_no_axes() -> None:
    a, b = {"temperature": "1", "top_k": "0"}, {"temperature": "2", "top_k": "0"}
    assert axes_of([]) == axes_of([a, a]) == axes_of([a, b, a]) == ()
    assert axes_of([a, {"temperature": "2", "top_k": "5"}]) == ()
    assert axes_of([{"a": "1", "b": "1", "c": "1"}, {"a": "2", "b": "2", "c": "2"}]) == ()
