"""A hub of one repository on this machine: the few routes that a download asks for."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

REPOSITORY = "org/tiny"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def running_hub(folder: Path) -> Iterator[str]:
    """Serve the files of `folder` as the repository org/tiny; yields the endpoint."""

    class Handler(_Handler):
        files: ClassVar[dict[str, bytes]] = {
            str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()
        }

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    files: ClassVar[dict[str, bytes]]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        resolve = f"/{REPOSITORY}/resolve/{COMMIT}/"
        if path.startswith(f"/api/models/{REPOSITORY}/tree/"):
            self._answer_json(
                [{"type": "file", "path": n, "size": len(d), "oid": _oid(d)} for n, d in self.files.items()]
            )
        elif path.startswith(f"/api/models/{REPOSITORY}"):
            siblings = [{"rfilename": name, "size": len(data)} for name, data in self.files.items()]
            self._answer_json({"id": REPOSITORY, "modelId": REPOSITORY, "sha": COMMIT, "siblings": siblings})
        elif path.startswith(resolve) and path.removeprefix(resolve) in self.files:
            data = self.files[path.removeprefix(resolve)]
            self._answer(200, data, {"X-Repo-Commit": COMMIT, "ETag": f'"{_oid(data)}"'})
        else:
            self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})

    def _answer_json(self, value: object) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test's output is its own."""


def _oid(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
