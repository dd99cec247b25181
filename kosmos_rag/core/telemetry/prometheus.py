"""Prometheus exporter for the metrics of an engine, service or worker.

observer = PrometheusObserver()
engine.observe(observer)
prometheus_client.start_http_server(9100, registry=observer.registry)
"""

import heapq
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping

from kosmos_rag.core.extras import missing_extra
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.telemetry.metrics import (
    ENGINE,
    INGESTION,
    TENANT_RETRIEVAL_SECONDS,
    TENANT_RETRIEVALS,
    Metric,
    load_wing_metrics,
)

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.core import Metric as MetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise missing_extra("metrics", "an exporter of metrics", "prometheus_client") from error

MAX_TENANTS = 50
"""Most tenants with time series of their own, in each process and for each metric."""
OTHERS = "other"


class PrometheusObserver:
    """Exports metrics from a registry of its own. Thread-safe.

    Histograms carry the current trace id as exemplar, visible in the OpenMetrics format.
    """

    def __init__(self, metrics: Collection[Metric] | None = None, *, top_tenants: int = 0) -> None:
        """Create the metrics.

        Args:
            metrics: What is exported; others are ignored. None for those of an engine and of ingestion.
            top_tenants: how many tenants get time series of their own, those with most searches; 50 at most.
        """
        if metrics is None:
            metrics = (*ENGINE, *load_wing_metrics("engine"), *INGESTION)
        self.registry = CollectorRegistry()
        self._families: dict[str, Counter | Histogram] = {}
        self._tenants = _TopTenants(min(top_tenants, MAX_TENANTS))
        self._gauges = _Gauges({metric.name for metric in metrics})
        self.registry.register(self._gauges)
        self.registry.register(self._tenants)
        for metric in metrics:
            if metric.kind != "gauge" and metric.name not in _BY_TENANT:
                self._families[metric.name] = family = self._create(metric)
                for labels in metric.initial:
                    family.labels(*labels)

    def _create(self, metric: Metric) -> Counter | Histogram:
        if metric.kind == "counter":
            return Counter(metric.name, metric.help, metric.labels, registry=self.registry)
        return Histogram(metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets)

    def record(self, metric: Metric, value: float = 1.0, *labels: str) -> None:
        """Add to a counter, or observe a value of a histogram."""
        if metric.name in _BY_TENANT:
            self._tenants.add(metric, value, *labels)
        elif family := self._families.get(metric.name):
            child = family.labels(*labels) if labels else family
            if isinstance(child, Histogram):
                trace_id = tracing.current_trace_id()
                child.observe(value, {"trace_id": trace_id} if trace_id else None)
            else:
                child.inc(value)

    def gauge(self, metric: Metric, read: Callable[[], float], *labels: str) -> None:
        """Call `read` for the value at each scrape.

        Values with equal labels are added.
        """
        self._gauges.add(metric, read, labels)


class _Gauges(Collector):
    """Values read at the scrape."""

    def __init__(self, exported: Collection[str]) -> None:
        self._exported = exported
        self._reads: list[tuple[Metric, Callable[[], float], tuple[str, ...]]] = []

    def add(self, metric: Metric, read: Callable[[], float], labels: tuple[str, ...]) -> None:
        if metric.name in self._exported:
            self._reads.append((metric, read, labels))

    def collect(self) -> Iterator[MetricFamily]:
        """Read all values."""
        families: dict[Metric, dict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
        for metric, read, labels in list(self._reads):
            families[metric][labels] += read()
        for metric, values in families.items():
            yield metric_family(metric, values)


_BY_TENANT = {metric.name: metric for metric in (TENANT_RETRIEVALS, TENANT_RETRIEVAL_SECONDS)}


class _TopTenants(Collector):
    """Searches by tenant: the busiest by name, all others together.

    Its memory grows with the number of tenants. What a tenant had before it got a series of its own stays with the
    others: a counter must not fall.
    """

    def __init__(self, top: int) -> None:
        self._top = top
        self._lock = threading.Lock()
        self._values: dict[str, dict[str, float]] = {name: defaultdict(float) for name in _BY_TENANT}
        self._others = dict.fromkeys(self._values, 0.0)
        self._busiest: set[str] = set()

    def add(self, metric: Metric, value: float, tenant: str) -> None:
        """Add to a tenant's counter."""
        if not self._top:
            return
        with self._lock:
            self._values[metric.name][tenant] += value
            if len(self._busiest) < self._top:
                self._busiest.add(tenant)
            if tenant not in self._busiest:
                self._others[metric.name] += value

    def collect(self) -> Iterator[MetricFamily]:
        """Select the busiest tenants again and return their series."""
        if not self._top:
            return
        with self._lock:
            searches = self._values[TENANT_RETRIEVALS.name]
            self._busiest = set(heapq.nsmallest(self._top, searches, key=lambda tenant: (-searches[tenant], tenant)))
            families = []
            for name, metric in _BY_TENANT.items():
                values = self._values[name]
                busiest: dict[tuple[str, ...], float] = {(tenant,): values.get(tenant, 0.0) for tenant in self._busiest}
                families.append(metric_family(metric, {**busiest, (OTHERS,): self._others[name]}))
        yield from families


def metric_family(metric: Metric, values: Mapping[tuple[str, ...], float]) -> MetricFamily:
    """Build the samples of a counter or gauge from values by labels."""
    family_type = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = family_type(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
