"""What a page is given when a link opens a run or a comparison, besides the events: prompt and forms."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import gradio as gr

Update = tuple[Any, ...]
"""New values for parts of a page, in their order; `SKIP` leaves one as it is."""

SKIP: Final = gr.skip()
AGAIN_S: Final = 0.5


async def headed_twice(
    head: Update, updates: AsyncGenerator[Update], *, again_s: float = AGAIN_S
) -> AsyncGenerator[Update]:
    """`updates`, the first of them with `head` before it, and once more with one that comes `again_s` later or after.

    Gradio's client now and then loses a value that it is sent while it sets the page up, and a run that has ended has
    no later update that would bring it.
    """
    clock = asyncio.get_running_loop().time
    nothing: Update = (SKIP,) * len(head)
    width, num_sent, again_at = 0, 0, clock() + again_s
    async with aclosing(updates):
        async for update in updates:
            width = len(update)
            is_due = num_sent == 0 or (num_sent == 1 and clock() >= again_at)
            num_sent += is_due
            yield *(head if is_due else nothing), *update
    if num_sent == 1:
        await asyncio.sleep(again_at - clock())
        yield *head, *(SKIP,) * width
