"""`python -m workers.prepare`: fetch and convert the served checkpoint, once. Afterwards no network is needed.

Exit status 2 and one sentence on standard error where it cannot be done; 130 after Ctrl-C and 143 after TERM, which
leave nothing behind: neither a download nor its process.
"""

import signal
import sys
import time
from types import FrameType
from typing import TextIO

from models.errors import DecodeLabError
from workers.engine.catalog import Catalog, prepare
from workers.settings import WorkerSettings

_BAR_WIDTH = 24


class ProgressLine:
    """A bar that redraws itself on a terminal; elsewhere one plain line for each thing that is begun."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._message = ""

    def __call__(self, message: str, share: float) -> None:
        """Show that `message` is being done and that `share` (0 to 1) of the whole is done."""
        if self._is_terminal:
            bar = ("#" * round(share * _BAR_WIDTH)).ljust(_BAR_WIDTH, ".")
            self._stream.write(f"\r[{bar}] {share:4.0%} {message}\x1b[K")
        elif message != self._message:
            self._stream.write(f"{message}\n")
        self._message = message
        self._stream.flush()

    def finish(self) -> None:
        if self._is_terminal and self._message:
            self._stream.write("\n")


class Interrupted(BaseException):
    """A signal asked for the end. No failure of a step, so nothing that handles those may catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.exit_status = 128 + number


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(number)


def main() -> int:
    line = ProgressLine(sys.stderr)
    began_s = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        settings = WorkerSettings.load()
        entry = Catalog.parse(settings.checkpoints, settings.data).entry(settings.serve or None)
        folder = prepare(entry, line)
    except DecodeLabError as exc:
        line.finish()
        sys.stderr.write(f"{exc.message}\n")
        return 2
    except Interrupted as exc:
        line.finish()
        sys.stderr.write(f"{exc}; nothing was left behind\n")
        return exc.exit_status
    line.finish()
    sys.stderr.write(f"checkpoint {entry.name} is ready in {folder} ({time.monotonic() - began_s:.1f} s)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
