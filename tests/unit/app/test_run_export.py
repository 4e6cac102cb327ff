"""Cells of the table for spreadsheets."""

import csv
import io
from typing import Any

import pytest

from app.run_export import _csv, safe_cell


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "\u3000=1", "＝1", "＋1", "－1", "＠x", "−1",
     "=cmd|' /C calc'!A0", "-", "\tx", "\0=1", "\x1f+1", "\u200b=1", "\ufeff@x", "\u00a0-1", "\x7f\x85=1", "\ud800=1"],
)  # fmt: skip
def test_what_a_spreadsheet_might_carry_out_is_text(text: str) -> None:
    assert safe_cell(text) == "'" + text


@pytest.mark.parametrize("value", ["", "a=1", "1", "'", "The", " a", -1.5, 3, None, "<b>"])
def test_other_cells_are_as_they_are(value: Any) -> None:
    assert safe_cell(value) == value


def test_a_cell_with_separators_stays_one_cell() -> None:
    cells = ['a,"b"', "two\nlines", "\r\n", "x\0y"]
    (row,) = csv.reader(io.StringIO(_csv(cells).decode(), newline=""))
    assert row == ['a,"b"', "two\nlines", "'\r\n", "x\0y"]
