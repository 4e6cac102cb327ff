"""The leases that this process holds, renewed well before they run out."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from workers.periodic import Periodic
from workers.record import Lease


class LeaseKeeper:
    """A run is held from its claim until its ending is committed, whatever the device does meanwhile."""

    def __init__(
        self, renew: Callable[[Sequence[Lease]], None], *, every_s: float, on_failure: Callable[[str], None]
    ) -> None:
        self._renew = renew
        self._held: dict[str, Lease] = {}
        self._lock = threading.Lock()
        self._loop = Periodic("leases", self.renew_all, every_s=every_s, on_failure=on_failure)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    @contextmanager
    def hold(self, lease: Lease) -> Iterator[None]:
        with self._lock:
            self._held[lease.run_id] = lease
        try:
            yield
        finally:
            with self._lock:
                # A later attempt of the same run may hold its own lease here by now.
                if self._held.get(lease.run_id) == lease:
                    del self._held[lease.run_id]

    def renew_all(self) -> None:
        with self._lock:
            held = list(self._held.values())
        if held:
            self._renew(held)
