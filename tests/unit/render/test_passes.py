"""The cache's positions, worked by hand: they add up to what the run held, and each stretch has its passes."""

from typing import Any

import pytest

from app.render.passes import Stretch, passes_strip, stretches
from models.events import Ended, Passes, Prefilled
from tests.fakes.events import ended as ended_event


def prefilled(num_prompt: int, num_computed: int, num_passes: int = 1) -> Prefilled:
    return Prefilled(num_prompt, num_computed, num_passes, 5.0, 100 * num_prompt)


def ended(passes: Passes, positions: int) -> Ended:
    return ended_event(passes=passes, kv_positions=positions, kv_bytes=100 * positions)


@pytest.mark.parametrize(
    ("end", "begin", "expected"),
    [
        (ended(Passes(1, 36, 5), 41), prefilled(5, 5), [Stretch("prefill", 5, 1), Stretch("decode", 36, 36)]),
        # 1,000 prompt positions, 600 of them another run's, in 1 pass; the rest as above.
        (
            ended(Passes(1, 9, 400), 1009),
            prefilled(1000, 400),
            [Stretch("shared", 600, 0), Stretch("prefill", 400, 1), Stretch("decode", 9, 9)],
        ),
        # A branch: 33 given tokens in the cache after 3 more passes, then 3 picked ones.
        (
            ended(Passes(1 + 3, 3, 4), 4 + 36),
            prefilled(4, 4),
            [Stretch("prefill", 4, 1), Stretch("read", 33, 3), Stretch("decode", 3, 3)],
        ),
        (ended(Passes(2, 0, 600), 600), prefilled(600, 600, 2), [Stretch("prefill", 600, 2)]),
        (ended(Passes(), 0), None, []),
    ],
)
def test_stretches_add_up_to_the_cache(end: Ended, begin: Any, expected: list[Stretch]) -> None:
    found = stretches(end, begin)
    assert found == expected
    assert sum(stretch.num_positions for stretch in found) == end.kv_positions


def test_every_pass_is_a_part_of_the_bar_and_every_position_of_decode() -> None:
    html = passes_strip(ended(Passes(2, 7, 600), 607), prefilled(600, 600, 2))
    bar = html.split("</div>")[0]
    assert bar.count("<i></i>") == 2 + 7
    assert "flex-grow:600" in bar
    assert "prefill <b>600</b> 60.0 kB" in html
    assert "607 cached positions, 100 B each" in html
    assert passes_strip(ended(Passes(2, 7, 600), 607), prefilled(600, 600, 2), num_beams=2) == ""
