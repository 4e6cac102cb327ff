"""Percentiles of the latest runs, by hand."""

import pytest

from app.overview import quantile


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([5.0], 0.99, 5.0),
        ([4.0, 1.0, 3.0, 2.0], 0.5, 2.0),  # at least a half, two of four, are not above it
        ([float(i) for i in range(1, 101)], 0.95, 95.0),
        ([float(i) for i in range(1, 101)], 0.99, 99.0),
        ([1.0, 2.0, 3.0], 0.0, 1.0),
    ],
)
def test_nearest_rank(values: list[float], q: float, expected: float) -> None:
    assert quantile(values, q) == expected
