"""Health endpoints of a worker: liveness, readiness, metrics."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from prometheus_client.exposition import choose_encoder

from kosmos_rag.apps.worker.metrics import WorkerMetrics
from kosmos_rag.core.errors import ConfigError

_ALIVE_S = 30.0
"""Seconds without an iteration of the main loop after which the supervisor is not alive."""


class HealthSource(Protocol):
    """The state of a supervisor."""

    metrics: WorkerMetrics
    ticked_at: float
    """When the main loop ran last, by `time.monotonic`."""

    @property
    def ready(self) -> bool:
        """Whether it can take jobs."""
        ...


@contextmanager
def serve_health(supervisor: HealthSource, port: int) -> Iterator[None]:
    """Serve /livez, /readyz and /metrics from a thread. Raises ConfigError where the port cannot be opened."""
    probes: dict[str, Callable[[], tuple[int, str, bytes]]] = {
        "/livez": lambda: _probe_response(time.monotonic() - supervisor.ticked_at < _ALIVE_S),
        "/readyz": lambda: _probe_response(supervisor.ready),
    }

    def metrics(accept: str) -> tuple[int, str, bytes]:
        encode, kind = choose_encoder(accept)
        return 200, kind, encode(supervisor.metrics.registry)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                status, kind, body = metrics(self.headers.get("Accept", ""))
            else:
                status, kind, body = probes.get(path, _not_found)()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: probes come every few seconds."""

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


def _probe_response(healthy: bool) -> tuple[int, str, bytes]:
    return (200, "text/plain", b"ok\n") if healthy else (503, "text/plain", b"not now\n")


def _not_found() -> tuple[int, str, bytes]:
    return 404, "text/plain", b"not found\n"
