"""Who goes first where a CPU both computes and carries tokens away.

A pass uses every core. The kernel lets a thread that wakes up on such a core wait for as long as the computing one may
go on, and a token wakes four threads in turn: publisher, Redis, web process, browser. Against computing threads of a
lower priority each of them starts at once. They need the cores for microseconds, so a pass loses next to nothing.
"""

import os
import threading
from typing import Final

LOWEST: Final = 19


def step_back(steps: int) -> None:
    """Lower the priority of the calling thread, and of those it will start, by so many steps of `nice`."""
    if steps:
        # On Linux a thread has a priority of its own, which `os.nice` would only change for the main one.
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(os.getpriority(os.PRIO_PROCESS, thread) + steps, LOWEST))
