"""Where an engine reports metrics, spans and slow searches, and observers attach."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from kosmos_rag.core.errors import KosmosError
from kosmos_rag.core.protocols import Observer
from kosmos_rag.core.telemetry import genai, tracing
from kosmos_rag.core.telemetry.metrics import (
    ANSWER_SECONDS,
    RETRIEVAL_FAILURES,
    RETRIEVAL_INCOMPLETE,
    RETRIEVAL_STAGE_SECONDS,
    TENANT_RETRIEVAL_SECONDS,
    TENANT_RETRIEVALS,
    Metric,
)
from kosmos_rag.core.types import SearchResult

log = logging.getLogger("kosmos_rag.retrieval")


class Telemetry:
    """Passes metrics of an engine to its observers.

    Without one, recording costs nothing. Thread-safe.
    """

    def __init__(self, *, slow_ms: int = 0) -> None:
        """Create telemetry without observers.

        Args:
            slow_ms: Searches of this duration or longer are logged; 0 for none.
        """
        self._slow_ms = slow_ms
        self._observers: tuple[Observer, ...] = ()
        self._gauges: list[tuple[Metric, Callable[[], float], tuple[str, ...]]] = []

    def attach(self, observer: Observer) -> None:
        """Pass metrics to this observer from now on."""
        for metric, read, labels in self._gauges:
            observer.gauge(metric, read, *labels)
        self._observers = (*self._observers, observer)

    def record(self, metric: Metric, value: float = 1.0, *labels: str) -> None:
        """Add to a counter, or observe a value of a histogram."""
        for observer in self._observers:
            observer.record(metric, value, *labels)

    def gauge(self, metric: Metric, read: Callable[[], float], *labels: str) -> None:
        """Register a function that returns the current value.

        It is called at each scrape.
        """
        self._gauges.append((metric, read, labels))
        for observer in self._observers:
            observer.gauge(metric, read, *labels)

    @contextmanager
    def time_stage(self, metric: Metric, stage: str, attributes: tracing.Attributes | None = None) -> Iterator[None]:
        """Trace the block as a span, and record its duration by `stage`.

        Args:
            stage: name of the stage; the span is `kosmos.STAGE`.
        """
        started = time.perf_counter()
        try:
            with tracing.start_span(f"kosmos.{stage}", attributes):
                yield
        finally:
            self.record(metric, time.perf_counter() - started, stage)

    def time_context(self) -> AbstractContextManager[None]:
        """Time how a context is assembled."""
        return self.time_stage(RETRIEVAL_STAGE_SECONDS, "context", genai.CHAIN_SPAN)

    def record_failure(self, error: KosmosError) -> None:
        """Count an error that ends a search, by its type."""
        self.record(RETRIEVAL_FAILURES, 1.0, type(error).__name__)

    def record_answer(self, seconds: float, stage: str) -> None:
        """Record the latency of an answer in seconds.

        To its first token (`first_token`) or its end (`total`).
        """
        self.record(ANSWER_SECONDS, seconds, stage)

    def record_search(self, tenant: str, collection: str | None, result: SearchResult) -> None:
        """Record the stages and completeness of a search.

        Slow searches are logged.
        """
        total_ms = result.timings_ms["total"]
        if self._slow_ms and total_ms >= self._slow_ms:
            _log_slow(tenant, collection, result)
        if not self._observers:
            return
        for stage, milliseconds in result.timings_ms.items():
            self.record(RETRIEVAL_STAGE_SECONDS, milliseconds / 1000, stage)
        if result.incomplete_reason is not None:
            self.record(RETRIEVAL_INCOMPLETE)
        self.record(TENANT_RETRIEVALS, 1.0, tenant)
        self.record(TENANT_RETRIEVAL_SECONDS, total_ms / 1000, tenant)


def _log_slow(tenant: str, collection: str | None, result: SearchResult) -> None:
    log.warning(
        "a search took %.0f ms",
        result.timings_ms["total"],
        extra={
            "action": "slow_retrieval",
            "tenant": tenant,
            "collection": collection,
            "timings_ms": dict(result.timings_ms),
            "plan": {
                name: {"plan": leg.plan, "requested": leg.requested, "returned": leg.returned, "read": dict(leg.read)}
                for name, leg in result.retrievers.items()
            },
            "requested": result.requested,
            "returned": result.returned,
            "cached": result.cached,
            "degraded_stages": list(result.degraded_stages),
            "texts": {"question": result.question},
        },
    )
