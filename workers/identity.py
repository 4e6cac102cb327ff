"""Who this worker is and with what it computes: for its presence, and for the capsule of every run."""

import os
import platform
import socket
import uuid
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

from models.presence import CheckpointInfo, WorkerPresence

_LIBRARIES: Final = (
    "celery",
    "llguidance",
    "numba",
    "numpy",
    "redis",
    "safetensors",
    "sqlalchemy",
    "tokenizers",
    "torch",
    "transformers",
)


def new_worker_id() -> str:
    """Unique, and short enough for the column of a lease's owner with a suffix."""
    return f"{socket.gethostname()[:24]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def versions() -> dict[str, str]:
    """What can change a number: the language, the project and the libraries."""
    names = {name: version(name) for name in (*_LIBRARIES, "decodelab")}
    return {"python": platform.python_version(), **names}


def run_facts(info: CheckpointInfo, *, num_threads: int) -> dict[str, Any]:
    """Columns of `runs` that say where and with what an attempt ran."""
    return {
        "checkpoint_revision": info.revision,
        "weights_digest": info.weights_digest,
        "capsule": {
            "versions": versions(),
            "device": info.device,
            "dtype": info.dtype,
            "batch_mode": "shared passes" if info.can_batch else "one pass a sequence",
            "is_fused": info.is_fused,
            "num_threads": num_threads,
            "machine": platform.machine(),
            "weights_digest": info.weights_digest,
        },
    }


def new_presence(worker_id: str, info: CheckpointInfo, *, num_rows: int) -> WorkerPresence:
    """The worker's presence at its start, with nothing running."""
    return WorkerPresence(
        worker_id=worker_id,
        host=socket.gethostname(),
        pid=os.getpid(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        num_rows=num_rows,
        num_running=0,
        checkpoint=info,
        versions=versions(),
    )
