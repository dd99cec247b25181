"""What the service counts, by the names that its /metrics shows. Routes are templates: no id becomes a label."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from kosmos_rag.config import ServiceSettings
from kosmos_rag.errors import ConfigError

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
STAGE_SECONDS = (0.0005, 0.001, 0.0025, *SECONDS)

Buckets = dict[str, tuple[list[int], float]]


class ServiceMetrics:
    """The metrics of one service, in a registry of its own. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "kosmos_service_requests",
            "Requests, by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "kosmos_service_request_seconds",
            "Seconds to the first byte of a response, by route.",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._stages = Histogram(
            "kosmos_service_stage_seconds",
            "Seconds of a stage of retrieval.",
            ["stage"],
            buckets=STAGE_SECONDS,
            registry=self.registry,
        )
        self._short = Counter(
            "kosmos_service_short_of_k", "Retrievals with fewer hits than asked for.", registry=self.registry
        )
        self._first_token = Histogram(
            "kosmos_service_first_token_seconds",
            "Seconds from the sources of an answer to its first piece.",
            buckets=SECONDS,
            registry=self.registry,
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def retrieval(self, timings_ms: Mapping[str, float], *, short: bool) -> None:
        """Count the stages of a retrieval."""
        for stage, milliseconds in timings_ms.items():
            self._stages.labels(stage).observe(milliseconds / 1000)
        if short:
            self._short.inc()

    def first_token(self, seconds: float) -> None:
        """Count the wait for a language model."""
        self._first_token.observe(seconds)

    def durations(self) -> tuple[Buckets, Buckets]:
        """Return how long stages took, and routes: by name, how many fell into each bucket, and the sum of seconds."""
        return _buckets(self._stages, "stage"), _buckets(self._seconds, "route")

    def watch(self, *, turns: Callable[[], float], streams: Callable[[], float]) -> None:
        """Show what is being worked on, at the time of the scrape."""
        for name, text, value in (
            ("turns", "Calls of the library that run.", turns),
            ("streams", "Answers that are being streamed.", streams),
        ):
            Gauge(f"kosmos_service_{name}", text, registry=self.registry).set_function(value)


def _buckets(histogram: Histogram, label: str) -> Buckets:
    upto: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    (family,) = histogram.collect()
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
