"""The tree of runs: every run once, below its parent, the one that is shown marked, texts inert."""

import re

from app.family import Relative
from app.render.branches import branches
from models.events import Status, StopReason


def relative(run_id: str, parent_id: str | None, at: int | None, start: str = " x") -> Relative:
    return Relative(run_id, parent_id, at, start, Status.FINISHED, StopReason.EOS, 5)


TREE = [
    relative("r", None, None),
    relative("late", "r", 9),
    relative("early", "r", 2, "<b>\n"),
    relative("below", "early", 4),
]


def test_each_run_is_below_its_parent_in_the_order_of_the_forks() -> None:
    html = branches(TREE, "early")
    assert re.findall(r'data-run="(\w+)"', html) == ["r", "early", "below", "late"]
    assert re.findall(r'href="\./\?run=(\w+)" aria-current', html) == ["early"]
    assert html.count("<ul") == 3  # the root, its children, the child of one of them
    assert "&lt;b&gt;\\n" in html
    assert "end token, 5 tokens" in html


def test_a_run_that_is_alone_has_no_tree() -> None:
    assert branches(TREE[:1], "r") == ""
