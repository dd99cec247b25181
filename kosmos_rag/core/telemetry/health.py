"""Health endpoints of a process: liveness, readiness, metrics.

They have a port of their own.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.extras import missing_extra

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder
except ModuleNotFoundError as error:
    raise missing_extra("metrics", "an exporter of metrics", "prometheus_client") from error

ALIVE_S = 30.0
"""Seconds without an iteration of the main loop after which a process is not alive."""
_CLIENT_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadyState:
    """What /readyz answers."""

    ready: bool
    unavailable_nodes: tuple[int, ...] = ()
    """Nodes of a cluster that are down. The process is ready for the tenants of the others."""

    @property
    def status(self) -> int:
        """Return the status of the response."""
        return 200 if self.ready else 503

    @property
    def text(self) -> str:
        """Return the body of the response.

        It names nodes by number: /readyz needs no credentials.
        """
        first = "ok\n" if self.ready else "not now\n"
        return first + "".join(f"node {number} of the cluster is unavailable\n" for number in self.unavailable_nodes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Probes:
    """What the endpoints report. Called from threads."""

    is_alive: Callable[[], bool]
    ready_state: Callable[[], ReadyState]
    registry: CollectorRegistry


@contextmanager
def serve_health(probes: Probes, host: str, port: int, *, key: str) -> Iterator[None]:
    """Serve /livez, /readyz and /metrics from threads of their own.

    Args:
        host: address to listen on; empty is all addresses.
        port: port to listen on.
        key: the setting of the port, for the error.

    Raises:
        ConfigError: the port cannot be opened.
    """
    try:
        server = ThreadingHTTPServer((host, port), _handler(probes))
    except OSError as error:
        raise ConfigError(f"{key} {port} cannot be opened: {error.strerror}; choose another") from error
    thread = threading.Thread(target=server.serve_forever, name="kosmos-rag-health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(probes: Probes) -> type[BaseHTTPRequestHandler]:
    responses: dict[str, Callable[[], tuple[int, str, bytes]]] = {
        "/livez": lambda: _probe_response(ReadyState(ready=probes.is_alive())),
        "/readyz": lambda: _probe_response(probes.ready_state()),
    }

    def metrics(accept: str) -> tuple[int, str, bytes]:
        encode, kind = choose_encoder(accept)
        return 200, kind, encode(probes.registry)

    class Handler(BaseHTTPRequestHandler):
        timeout = _CLIENT_TIMEOUT_S

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                status, kind, body = metrics(self.headers.get("Accept", ""))
            else:
                status, kind, body = responses.get(path, _not_found)()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: probes come every few seconds."""

    return Handler


def _probe_response(state: ReadyState) -> tuple[int, str, bytes]:
    return state.status, "text/plain", state.text.encode()


def _not_found() -> tuple[int, str, bytes]:
    return 404, "text/plain", b"not found\n"
