"""Several runs as one stream of batches."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from app.merging import merged
from models.errors import DatabaseUnavailableError, DecodeLabError
from models.events import Event, Resumed


class Source:
    """Events 0..n-1, one every `every_s`; knows whether it was closed."""

    def __init__(self, n: int, *, every_s: float = 0.0, then: BaseException | None = None, hangs: bool = False) -> None:
        self.n, self.every_s, self.then, self.hangs = n, every_s, then, hangs
        self.is_closed = False

    async def events(self) -> AsyncGenerator[Event, None]:
        try:
            for seq in range(self.n):
                await asyncio.sleep(self.every_s)
                yield Event("r", 1, seq, Resumed(seq))
            if self.then is not None:
                raise self.then
            if self.hangs:
                await asyncio.sleep(3600)
        finally:
            self.is_closed = True


async def collect(*sources: Source) -> list[tuple[int, Event | DecodeLabError]]:
    async with aclosing(merged([s.events() for s in sources], pause_s=0.001)) as batches:
        return [item async for batch in batches for item in batch]


def test_each_source_keeps_its_order_and_loses_nothing() -> None:
    items = asyncio.run(collect(Source(2000), Source(5, every_s=0.002)))
    for index, n in ((0, 2000), (1, 5)):
        assert [e.seq for i, e in items if i == index and isinstance(e, Event)] == list(range(n))


def test_a_failing_source_hands_its_error_on_and_the_others_go_on() -> None:
    error = DatabaseUnavailableError("away")
    items = asyncio.run(collect(Source(1, then=error), Source(20, every_s=0.001)))
    assert [item for i, item in items if i == 0][-1] is error
    assert len([item for i, item in items if i == 1]) == 20


def test_a_fault_of_another_kind_is_not_swallowed() -> None:
    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(asyncio.wait_for(collect(Source(1, then=RuntimeError("broken"))), 5))


def test_a_silent_source_gives_heartbeats_and_closing_closes_it() -> None:
    async def scenario() -> Source:
        source = Source(0, hangs=True)
        batches = merged([source.events()], pause_s=0, heartbeat_s=0.01)
        assert [await anext(batches) for _ in range(3)] == [[], [], []]
        await batches.aclose()
        return source

    assert asyncio.run(scenario()).is_closed


def test_closing_while_a_source_waits_for_a_slow_reader_closes_it() -> None:
    async def scenario() -> Source:
        source = Source(100_000)
        batches = merged([source.events()], pause_s=0)
        await anext(batches)
        await asyncio.sleep(0.01)  # the source fills the queue and waits
        await batches.aclose()
        return source

    assert asyncio.run(scenario()).is_closed
