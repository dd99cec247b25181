"""Metrics of the HTTP service and of MCP over HTTP, on `service.health_port`.

The label `route` is the route's template: no id becomes a label.
"""

from collections.abc import Callable

from kosmos_rag.core.config import ObservabilitySettings
from kosmos_rag.core.telemetry.metrics import ENGINE, SECONDS, Metric, load_wing_metrics
from kosmos_rag.core.telemetry.prometheus import PrometheusObserver

HTTP_REQUESTS = Metric(
    "kosmos_http_requests",
    "counter",
    "HTTP requests, by method, route and status. A stream that failed counts with the status of its error.",
    ("method", "route", "status"),
)
HTTP_REQUEST_SECONDS = Metric(
    "kosmos_http_request_seconds",
    "histogram",
    "Time to the first byte of an HTTP response, by route.",
    ("route",),
    SECONDS,
)
HTTP_CALLS_IN_FLIGHT = Metric(
    "kosmos_http_calls_in_flight", "gauge", "Engine calls of HTTP requests that run now; database.pool_size at most."
)
HTTP_STREAMS_IN_FLIGHT = Metric(
    "kosmos_http_streams_in_flight", "gauge", "Answers that are streamed to HTTP clients now."
)

HTTP = (HTTP_REQUESTS, HTTP_REQUEST_SECONDS, HTTP_CALLS_IN_FLIGHT, HTTP_STREAMS_IN_FLIGHT)


class ServiceMetrics:
    """Metrics of one service and its engine.

    They have a registry of their own. Thread-safe.
    """

    def __init__(self, settings: ObservabilitySettings) -> None:
        self.observer = PrometheusObserver(
            (*ENGINE, *load_wing_metrics("engine"), *HTTP), top_tenants=settings.top_tenants
        )
        self.registry = self.observer.registry

    def record_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request and its time to the first byte.

        Args:
            route: template of the route.
            seconds: time to the first byte.
        """
        self.observer.record(HTTP_REQUESTS, 1, method, route, str(status))
        self.observer.record(HTTP_REQUEST_SECONDS, seconds, route)

    def register_gauges(self, *, calls: Callable[[], float], streams: Callable[[], float]) -> None:
        """Export how many engine calls and streams run, read at each scrape."""
        self.observer.gauge(HTTP_CALLS_IN_FLIGHT, calls)
        self.observer.gauge(HTTP_STREAMS_IN_FLIGHT, streams)
