"""A web server of a test, on a free port of this machine."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers each path as the test says; notes the requests."""

    disable_nagle_algorithm = True  # head and body are sent apart: one would wait for the other
    server: "Server"

    def do_GET(self) -> None:
        self.server.requests.append((self.command, self.path, self.headers["Host"]))
        self.server.replies.get(self.path, lambda handler: handler.send(404))(self)

    do_HEAD = do_GET  # noqa: N815 — as the base class has it

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — as the base class has it
        pass


class Server(ThreadingHTTPServer):
    """A server on a free port of this machine."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies: dict[str, Reply] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.closing = threading.Event()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that hang up are what is tested."""

    @classmethod
    @contextmanager
    def run(cls) -> Iterator["Server"]:
        """Serve until the end of the block."""
        with cls().serve() as server:
            yield server

    @contextmanager
    def serve(self) -> Iterator["Server"]:
        """Serve from a thread until the end of the block."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.closing.set()
            self.shutdown()
            self.server_close()
            thread.join()
