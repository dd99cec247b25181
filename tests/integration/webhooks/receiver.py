"""An endpoint of a subscriber, which verifies signatures as a receiver does."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook

Reply = Callable[[dict[str, Any]], int]


def accept(_: dict[str, Any]) -> int:
    """Accept every message."""
    return 204


class _Handler(BaseHTTPRequestHandler):
    server: "Receiver"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        message = json.loads(body)
        if self.server.secret:
            Webhook(self.server.secret).verify(body, headers)
        with self.server.lock:
            self.server.requests.append(headers)
            status = self.server.reply(message)
            if 200 <= status < 300:
                self.server.messages.append(message)
                self.server.ids.append(headers["webhook-id"])
        self.send_response(status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — as the base class has it
        pass


class Receiver(ThreadingHTTPServer):
    """A receiver on a free port of this machine."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.secret = ""
        self.reply: Reply = accept
        self.headers: dict[str, str] = {}
        self.requests: list[dict[str, str]] = []
        self.messages: list[dict[str, Any]] = []
        """Those that were accepted."""
        self.ids: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"

    @property
    def sequences(self) -> list[int]:
        return [message["data"]["sequence"] for message in self.messages]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a signature that is wrong ends the connection."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Receive until the end of the block."""
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()
