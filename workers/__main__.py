"""`python -m workers`: one worker, until TERM or Ctrl-C.

Exit status: 0 after TERM or Ctrl-C, 69 when Redis or the database is not available, 78 when a setting or the checkpoint
is wrong, 70 when the worker found itself broken and must be replaced.
"""

import logging
import sys
from typing import TYPE_CHECKING, Final

from models.errors import CheckpointError, DecodeLabError, RefusedError, UnavailableError
from models.names import EXIT_CONFIGURATION
from workers.connections import Connections
from workers.engine.catalog import Catalog
from workers.settings import WorkerSettings, limit_spinning

if TYPE_CHECKING:
    from workers.worker import Load

EXIT_UNAVAILABLE: Final = 69


def main(settings: WorkerSettings | None = None, load: "Load | None" = None) -> int:
    """Run a worker until TERM; returns the exit status. `load` replaces the real way to load a checkpoint."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = settings or WorkerSettings.load()
        limit_spinning()
        entry = Catalog.parse(settings.checkpoints, settings.data).entry(settings.serve or None)
        connections = Connections.open(settings)
        # Imported now: torch alone takes seconds, and what is missing should be told at once.
        from workers.engine.checkpoint import load_checkpoint
        from workers.worker import build

        worker = build(settings, connections, entry, load or load_checkpoint)
    except (RefusedError, CheckpointError) as exc:
        return _refuse(exc, EXIT_CONFIGURATION)
    except UnavailableError as exc:
        return _refuse(exc, EXIT_UNAVAILABLE)
    return worker.run()


def _refuse(exc: DecodeLabError, status: int) -> int:
    sys.stderr.write(f"The worker cannot start: {exc.message}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
