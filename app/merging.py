"""Several runs' events as one stream of small batches, so that one handler feeds a page."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Final

from models.errors import DecodeLabError
from models.events import Event

PAUSE_S: Final = 0.04  # between two batches: 25 a second are enough for the eye
HEARTBEAT_S: Final = 1.0  # a page that was left is noticed at the next batch, so there is always a next one
_QUEUE_SIZE: Final = 512  # events that wait for a slow page; the sources wait when it is full

Item = tuple[int, Event | DecodeLabError]


async def merged(
    sources: Sequence[AsyncIterator[Event]], *, pause_s: float = PAUSE_S, heartbeat_s: float = HEARTBEAT_S
) -> AsyncGenerator[list[Item]]:
    """Batches of (index of the source, event) in the order in which they come, each source's own order kept.

    A batch is empty when nothing came for `heartbeat_s`. A source that fails with a DecodeLabError hands it on as
    its last item and the others go on. Closing this generator closes every source.
    """
    queue: asyncio.Queue[tuple[int, Event | DecodeLabError | None]] = asyncio.Queue(_QUEUE_SIZE)
    tasks = [asyncio.create_task(_pump(i, source, queue)) for i, source in enumerate(sources)]
    num_open = len(tasks)
    try:
        while num_open and not any(_has_failed(task) for task in tasks):
            batch = await _next_batch(queue, heartbeat_s)
            num_open -= sum(item is None for _, item in batch)
            yield [(i, item) for i, item in batch if item is not None]
            await asyncio.sleep(pause_s)
        await asyncio.gather(*tasks)  # a fault that is no DecodeLabError is not swallowed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


async def _next_batch(
    queue: asyncio.Queue[tuple[int, Event | DecodeLabError | None]], heartbeat_s: float
) -> list[tuple[int, Event | DecodeLabError | None]]:
    try:
        batch = [await asyncio.wait_for(queue.get(), heartbeat_s)]
    except TimeoutError:
        return []
    while not queue.empty():
        batch.append(queue.get_nowait())
    return batch


async def _pump(
    index: int, source: AsyncIterator[Event], queue: asyncio.Queue[tuple[int, Event | DecodeLabError | None]]
) -> None:
    try:
        async for event in source:
            await queue.put((index, event))
    except DecodeLabError as exc:
        await queue.put((index, exc))
    finally:
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()
    await queue.put((index, None))
