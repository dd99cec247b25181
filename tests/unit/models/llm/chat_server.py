"""A server of language models over real sockets that speaks both protocols and says what it is told."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["Handler"], None]
Messages = list[dict[str, str]]


class Handler(BaseHTTPRequestHandler):
    """Hands each request to the next of the server's replies, the last of which stays."""

    disable_nagle_algorithm = True  # head and body are sent apart: one would wait for the other
    server: "ChatServer"
    body: dict[str, Any]

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append((self.path, dict(self.headers), self.body))
            replies = self.server.replies
            reply = replies.pop(0) if len(replies) > 1 else replies[0]
        try:
            reply(self)
        except (BrokenPipeError, ConnectionResetError):
            self.server.given_up.set()

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> None:
        self.send_response(200)
        self.end_headers()

    def piece(self, text: object) -> None:
        """Send one piece by the protocol that was asked."""
        if self.path.endswith("/api/chat"):
            self.line({"message": {"role": "assistant", "content": text}, "done": False})
        else:
            self.line({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})

    def end(self) -> None:
        if self.path.endswith("/api/chat"):
            self.line({"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"})
        else:
            self.line({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            self.wfile.write(b"data: [DONE]\n\n")

    def line(self, event: object) -> None:
        text = json.dumps(event, ensure_ascii=False)
        self.wfile.write((text + "\n" if self.path.endswith("/api/chat") else f"data: {text}\n\n").encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — as the base class has it
        pass


class ChatServer(ThreadingHTTPServer):
    """Answers as a test says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.given_up = threading.Event()
        """Set when a client hung up while it was being answered."""
        self.replies: list[Reply] = [writes("fine")]
        self.requests: list[tuple[str, dict[str, str], Any]] = []

    def url(self, path: str = "/v1") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that give up are what is tested."""


@contextmanager
def running() -> Iterator[ChatServer]:
    """Run a server until the block ends."""
    with ChatServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()


def writes(*pieces: object) -> Reply:
    """Answer in these pieces."""
    return plays(lambda messages: pieces)


def plays(model: Callable[[Messages], Iterable[object]]) -> Reply:
    """Answer as a model does to what it is told."""

    def reply(handler: Handler) -> None:
        handler.begin()
        for piece in model(handler.body["messages"]):
            handler.piece(piece)
        handler.end()

    return reply


def writes_and_then(then: Reply, *pieces: object) -> Reply:
    """Begin an answer, and then do something else."""

    def reply(handler: Handler) -> None:
        handler.begin()
        for piece in pieces:
            handler.piece(piece)
        then(handler)

    return reply


def cuts_off(handler: Handler) -> None:
    """End an answer at the most tokens that were asked for."""
    handler.line({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})


def sends(body: bytes) -> Reply:
    """Send bytes as they are."""

    def reply(handler: Handler) -> None:
        handler.wfile.write(body)

    return reply


def returns(status: int, body: bytes = b"", **headers: str) -> Reply:
    return lambda handler: handler.send(status, body, **headers)


def hangs(handler: Handler) -> None:
    handler.server.closing.wait(20)


def hangs_up(handler: Handler) -> None:
    handler.close_connection = True


def breaks_off(handler: Handler) -> None:
    """Promise more than comes."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.piece("Churn is ")


def drips(handler: Handler) -> None:
    """Go on with white space, until the client hangs up."""
    while not handler.server.closing.wait(0.02):
        handler.wfile.write(b"\n")


def drips_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nX-Drip: ")
    while not handler.server.closing.wait(0.02):
        handler.wfile.write(b" ")


def drips_body(handler: Handler) -> None:
    handler.begin()
    drips(handler)
