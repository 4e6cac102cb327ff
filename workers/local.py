"""`python -m workers.local`: runs in this process, without queue, database or page; nothing is saved.

Standard input has one request a line: {"prompt", "messages", "settings", "checkpoint", "run_id", "given_text",
"arms"}, all optional but the prompt or, in its place, the messages of a chat. With a given text the run scores that
after it. "arms" are the settings of requests to come: nothing runs where one of them would be refused.
Standard output has one event a line, as streams and tables hold them: the runs one after the other. An error is one
line, {"error": {...}}, and exit status 2.
"""

import json
import sys

from models.errors import DecodeLabError
from workers.settings import WorkerSettings, limit_spinning


def main() -> int:
    try:
        settings = WorkerSettings.load()
        limit_spinning()
        from workers.local_runs import open_local_runs  # it imports torch, which reads that bound once

        local_runs = open_local_runs(settings)
        for index, line in enumerate(filter(bytes.strip, sys.stdin.buffer)):
            for event in local_runs.run(line, default_id=f"local-{index}"):
                _write_line(event.encode())
    except DecodeLabError as exc:
        _write_line(json.dumps(exc.as_dict()).encode())
        return 2
    return 0


def _write_line(data: bytes) -> None:
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
