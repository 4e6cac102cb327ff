"""An application served from a thread of the test's process."""

import socket
import threading
from typing import Any

import uvicorn

from tests.fakes.services import wait_until


class ServerThread:
    """uvicorn in a thread of the test's process, so that a test can look at the scripted parts."""

    def __init__(self, app: Any, *, port: int = 0) -> None:
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def start(self) -> None:
        self._thread.start()
        wait_until(lambda: self._server.started, what="the server's start")

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()
