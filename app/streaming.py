"""Gradio's stream of a generator's updates, made safe for a browser that is behind."""

from typing import Any, Final

import gradio as gr
from gradio.blocks import BlockFunction

Update = tuple[Any, ...]
"""New values for parts of a page, in their order; `SKIP` leaves one as it is."""

SKIP: Final = gr.skip()


class Pages(gr.Blocks):
    """`gr.Blocks` that sends each update of a component's properties whole instead of as a difference.

    Gradio's client applies a difference to the very object that it has queued for the page: where `gr.update(...)`, or
    a value that is a dict, is followed by `SKIP` before the page has taken it, everything is gone from it, and the page
    never learns it. From one plain value to the next differences do no harm: what is then shown early is only what
    comes next anyway.
    """

    def handle_streaming_diffs(
        self,
        block_fn: BlockFunction,
        data: list[Any],
        session_hash: str | None,
        run: str | None,
        final: bool,
        simple_format: bool = False,
    ) -> list[Any]:
        """What the client is sent: per output its first value, then lists of edits (action, path, value)."""
        sent = self.pending_diff_streams[session_hash].get(run) if session_hash is not None else None
        before = list(sent) if sent is not None else None
        whole = list(data)
        edits = super().handle_streaming_diffs(block_fn, data, session_hash, run, final, simple_format)
        if before is None or final or simple_format:
            return edits
        return [
            [["replace", [], value]] if edit and (_is_update(old) or _is_update(value)) else edit
            for edit, old, value in zip(edits, before, whole, strict=True)
        ]


def _is_update(value: object) -> bool:
    return isinstance(value, dict) and value.get("__type__") == "update"
