"""The diff of two texts in tokens."""

from hypothesis import given
from hypothesis import strategies as st

from app.token_diff import Change, changes

ids = st.lists(st.integers(0, 5), max_size=30)


def test_by_hand() -> None:
    assert changes([1, 2, 3, 4], [1, 9, 3, 4, 5]) == [Change(1, 2, 1, 2), Change(4, 4, 4, 5)]
    assert changes([1, 2, 3], [1, 3]) == [Change(1, 2, 1, 1)]
    assert changes([], [7]) == [Change(0, 0, 0, 1)]


@given(ids, ids)
def test_the_changes_make_one_text_of_the_other(base: list[int], other: list[int]) -> None:
    made, at = [], 0
    for change in changes(base, other):
        assert (change.base_start, change.start) != (change.base_end, change.end)
        made += [*base[at : change.base_start], *other[change.start : change.end]]
        at = change.base_end
    assert made + base[at:] == other
    assert (changes(base, other) == []) == (base == other)


def test_a_frequent_token_of_a_long_text_is_not_junk() -> None:
    assert changes([1] * 400, [1] * 399 + [2]) == [Change(399, 400, 399, 400)]
