"""The worker's health over HTTP: is it alive, is it ready, and its metrics."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from prometheus_client.exposition import choose_encoder

from kosmos_rag.core.errors import ConfigError

if TYPE_CHECKING:
    from kosmos_rag.apps.worker.supervisor import Supervisor

_ALIVE_S = 30.0


@contextmanager
def serve_health(supervisor: "Supervisor", port: int) -> Iterator[None]:
    """Serve /livez, /readyz and /metrics from a thread. Raises ConfigError where the port cannot be had."""
    answers: dict[str, Callable[[], tuple[int, str, bytes]]] = {
        "/livez": lambda: _plain(time.monotonic() - supervisor.ticked_at < _ALIVE_S),
        "/readyz": lambda: _plain(supervisor.ready),
    }

    def metrics(accepted: str) -> tuple[int, str, bytes]:
        encode, kind = choose_encoder(accepted)
        return 200, kind, encode(supervisor.metrics.registry)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                status, kind, body = metrics(self.headers.get("Accept", ""))
            else:
                status, kind, body = answers.get(path, _nothing)()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay silent: probes come every few seconds."""

    try:
        server = ThreadingHTTPServer(("", port), Handler)
    except OSError as error:
        raise ConfigError(f"worker.health_port {port} cannot be opened: {error.strerror}; choose another") from error
    thread = threading.Thread(target=server.serve_forever, name="kosmos-rag-health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _plain(good: bool) -> tuple[int, str, bytes]:
    return (200, "text/plain", b"ok\n") if good else (503, "text/plain", b"not now\n")


def _nothing() -> tuple[int, str, bytes]:
    return 404, "text/plain", b"not found\n"
