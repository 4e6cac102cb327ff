"""Prompt and forms of a page that a link has opened."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from app.heads import SKIP, Update, headed_twice

HEAD: Update = ("prompt", "form")


async def told(pauses_s: Sequence[float]) -> AsyncGenerator[Update]:
    for number, pause_s in enumerate(pauses_s):
        await asyncio.sleep(pause_s)
        yield number, "event"


async def given(pauses_s: Sequence[float]) -> list[Update]:
    return [update async for update in headed_twice(HEAD, told(pauses_s), again_s=0.05)]


def test_a_run_that_has_ended_brings_the_head_at_once_and_a_moment_later() -> None:
    assert asyncio.run(given([0, 0])) == [
        (*HEAD, 0, "event"),
        (SKIP, SKIP, 1, "event"),
        (*HEAD, SKIP, SKIP),
    ]


def test_a_run_that_goes_on_brings_it_with_a_later_update_and_then_no_more() -> None:
    assert asyncio.run(given([0, 0, 0.08, 0.08])) == [
        (*HEAD, 0, "event"),
        (SKIP, SKIP, 1, "event"),
        (*HEAD, 2, "event"),
        (SKIP, SKIP, 3, "event"),
    ]


def test_where_nothing_is_told_there_is_no_head() -> None:
    assert asyncio.run(given([])) == []


def test_leaving_the_page_ends_the_reading() -> None:
    async def left() -> bool:
        updates = told([0, 0, 0])
        reading = headed_twice(HEAD, updates)
        await anext(reading)
        await reading.aclose()
        return updates.ag_frame is None

    assert asyncio.run(left())
