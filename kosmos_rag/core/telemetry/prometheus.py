"""Samples for Prometheus of what an engine, a service or a worker tells.

observer = PrometheusObserver()
engine.observe(observer)
prometheus_client.start_http_server(9100, registry=observer.registry)
"""

import heapq
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Metrics
from prometheus_client.registry import Collector

from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.telemetry.metrics import ENGINE, INGESTION, TENANT_RETRIEVAL_SECONDS, TENANT_RETRIEVALS, Metric

MAX_TENANTS = 50
"""Tenants that have series of their own at most: each is one for each process and metric."""
OTHERS = "other"

_Family = Counter | Histogram


class PrometheusObserver:
    """Listens, and keeps what it hears in a registry of its own. Thread-safe.

    Samples of histograms carry the trace that they belong to, as exemplars, to who asks for OpenMetrics.
    """

    def __init__(self, metrics: Collection[Metric] = (*ENGINE, *INGESTION), *, top_tenants: int = 0) -> None:
        """Listen to what is told of these metrics; of tenants by name to so many, 50 at most, that ask most."""
        self.registry = CollectorRegistry()
        self._listened = frozenset(metric.name for metric in metrics)
        self._lock = threading.Lock()
        self._families: dict[str, _Family] = {}
        self._children: dict[tuple[str, tuple[str, ...]], _Family] = {}
        self._watched = _Watched()
        self._tenants = _Tenants(min(top_tenants, MAX_TENANTS))
        self.registry.register(self._watched)
        self.registry.register(self._tenants)
        for metric in metrics:
            if metric.kind != "gauge":  # to be 0, and not missing, before the first
                for labels in metric.known if metric.labels else ((),):
                    self._child(metric, labels)

    def record(self, metric: Metric, value: float = 1.0, *labels: str) -> None:
        """Add to a counter, or put a value into a histogram."""
        if metric is TENANT_RETRIEVALS or metric is TENANT_RETRIEVAL_SECONDS:
            self._tenants.add(metric, value, *labels)
            return
        if metric.name not in self._listened:
            return
        child = self._children.get((metric.name, labels)) or self._child(metric, labels)
        if isinstance(child, Histogram):
            trace_id = tracing.trace_id()
            child.observe(value, {"trace_id": trace_id} if trace_id else None)
        else:
            child.inc(value)

    def watch(self, metric: Metric, read: Callable[[], float], *labels: str) -> None:
        """Have a value read with each scrape; values of the same labels are added."""
        if metric.name in self._listened:
            self._watched.add(metric, read, labels)

    def family(self, metric: Metric) -> Metrics:
        """Return what was recorded of a metric so far."""
        (found,) = self._family(metric).collect()
        return found

    def _child(self, metric: Metric, labels: tuple[str, ...]) -> _Family:
        family = self._family(metric)
        child = family.labels(*labels) if labels else family
        self._children[metric.name, labels] = child
        return child

    def _family(self, metric: Metric) -> _Family:
        with self._lock:
            if metric.name not in self._families:
                self._families[metric.name] = (
                    Counter(metric.name, metric.help, metric.labels, registry=self.registry)
                    if metric.kind == "counter"
                    else Histogram(
                        metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets
                    )
                )
            return self._families[metric.name]


class _Watched(Collector):
    """Values that are read with each scrape."""

    def __init__(self) -> None:
        self._reads: list[tuple[Metric, Callable[[], float], tuple[str, ...]]] = []

    def add(self, metric: Metric, read: Callable[[], float], labels: tuple[str, ...]) -> None:
        """Read this one too."""
        self._reads.append((metric, read, labels))

    def describe(self) -> Iterable[Metrics]:
        """Name nothing beforehand: no value is read for that."""
        return []

    def collect(self) -> Iterator[Metrics]:
        """Read them all."""
        values: dict[Metric, dict[tuple[str, ...], float]] = {}
        for metric, read, labels in list(self._reads):
            of_metric = values.setdefault(metric, {})
            of_metric[labels] = of_metric.get(labels, 0.0) + read()
        for metric, by_labels in values.items():
            yield family_of(metric, by_labels)


class _Tenants(Collector):
    """How much tenants ask: those that ask most by name, the rest together. What it keeps grows with the tenants.

    What a tenant asked while it had no name stays with the rest: a counter must not fall.
    """

    def __init__(self, top: int) -> None:
        self._top = top
        self._lock = threading.Lock()
        self._values: dict[str, dict[str, float]] = {TENANT_RETRIEVALS.name: {}, TENANT_RETRIEVAL_SECONDS.name: {}}
        self._others = dict.fromkeys(self._values, 0.0)
        self._named: set[str] = set()

    def add(self, metric: Metric, value: float, tenant: str) -> None:
        """Add what a tenant asked."""
        if self._top:
            with self._lock:
                values = self._values[metric.name]
                values[tenant] = values.get(tenant, 0.0) + value
                if len(self._named) < self._top:
                    self._named.add(tenant)
                if tenant not in self._named:
                    self._others[metric.name] += value

    def describe(self) -> Iterable[Metrics]:
        """Name nothing beforehand."""
        return []

    def collect(self) -> Iterator[Metrics]:
        """Tell of those that asked most."""
        if not self._top:
            return
        with self._lock:
            asked = self._values[TENANT_RETRIEVALS.name]
            self._named = set(heapq.nsmallest(self._top, asked, key=lambda tenant: (-asked[tenant], tenant)))
            told: list[tuple[Metric, dict[tuple[str, ...], float]]] = []
            for metric in (TENANT_RETRIEVALS, TENANT_RETRIEVAL_SECONDS):
                values = self._values[metric.name]
                named: dict[tuple[str, ...], float] = {(tenant,): values.get(tenant, 0.0) for tenant in self._named}
                told.append((metric, {**named, (OTHERS,): self._others[metric.name]}))
        for metric, by_labels in told:
            yield family_of(metric, by_labels)


def family_of(metric: Metric, values: Mapping[tuple[str, ...], float]) -> Metrics:
    """Return samples of a counter or a gauge whose values are known elsewhere, by their labels."""
    made = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = made(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
