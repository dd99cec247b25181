"""What the service counts, by the names that its /metrics shows. Routes are templates: no id becomes a label."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import start_http_server
from prometheus_client.core import Metric

from kosmos_rag.core.config import ObservabilitySettings, ServiceSettings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.telemetry.metrics import (
    ENGINE,
    REQUEST_SECONDS,
    REQUESTS,
    RETRIEVAL_STAGE_SECONDS,
    SERVICE,
    STREAMS,
    TURNS,
)
from kosmos_rag.core.telemetry.prometheus import PrometheusObserver

Buckets = dict[str, tuple[list[int], float]]


class ServiceMetrics:
    """The metrics of one service and of its engine, in a registry of its own. Thread-safe."""

    def __init__(self, settings: ObservabilitySettings) -> None:
        self.observer = PrometheusObserver((*ENGINE, *SERVICE), top_tenants=settings.top_tenants)
        self.registry = self.observer.registry

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.observer.record(REQUESTS, 1, method, route, str(status))
        self.observer.record(REQUEST_SECONDS, seconds, route)

    def durations(self) -> tuple[Buckets, Buckets]:
        """Return how long stages took, and routes: by name, how many fell into each bucket, and the sum of seconds."""
        families = self.observer.family(RETRIEVAL_STAGE_SECONDS), self.observer.family(REQUEST_SECONDS)
        return _buckets(families[0], "stage"), _buckets(families[1], "route")

    def watch(self, *, turns: Callable[[], float], streams: Callable[[], float]) -> None:
        """Show what is being worked on, at the time of the scrape."""
        self.observer.watch(TURNS, turns)
        self.observer.watch(STREAMS, streams)


def _buckets(family: Metric, label: str) -> Buckets:
    upto: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    for sample in family.samples:
        if sample.name.endswith("_bucket"):  # each counts those below it too
            upto.setdefault(sample.labels[label], []).append(sample.value)
        elif sample.name.endswith("_sum"):
            seconds[sample.labels[label]] = sample.value
    return {
        name: ([int(one - before) for before, one in zip([0.0, *counts], counts, strict=False)], seconds[name])
        for name, counts in upto.items()
    }


@contextmanager
def served(metrics: ServiceMetrics, settings: ServiceSettings) -> Iterator[None]:
    """Serve /metrics on its own port from a thread, where one is set. Raises ConfigError where it cannot be had."""
    if settings.metrics_port is None:
        yield
        return
    try:
        server, thread = start_http_server(settings.metrics_port, settings.host, metrics.registry)
    except OSError as error:
        raise ConfigError(
            f"service.metrics_port {settings.metrics_port} cannot be opened: {error.strerror}; choose another"
        ) from error
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
