"""The fixtures of the worker side."""

from tests.fakes.worker_side import lite_stack, stack, start_worker

__all__ = ["lite_stack", "stack", "start_worker"]
