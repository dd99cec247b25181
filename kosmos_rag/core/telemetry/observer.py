"""What an engine tells of itself, to whoever listens: samples of metrics, and a line of the log where it was slow."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from kosmos_rag.core.errors import KosmosError
from kosmos_rag.core.protocols import Observer
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.telemetry.metrics import (
    ANSWER_SECONDS,
    RETRIEVAL_FAILURES,
    RETRIEVAL_SHORT_OF_K,
    RETRIEVAL_STAGE_SECONDS,
    TENANT_RETRIEVAL_SECONDS,
    TENANT_RETRIEVALS,
    Metric,
)
from kosmos_rag.core.types import SearchResult

log = logging.getLogger("kosmos_rag.retrieval")


class Observation:
    """Passes on what parts of an engine tell. Nobody listens until `add`, and telling costs nothing. Thread-safe."""

    def __init__(self, *, slow_ms: int = 0) -> None:
        self._slow_ms = slow_ms
        self._observers: tuple[Observer, ...] = ()
        self._watched: list[tuple[Metric, Callable[[], float], tuple[str, ...]]] = []

    def add(self, observer: Observer) -> None:
        """Tell this one too from now on."""
        for metric, read, labels in self._watched:
            observer.watch(metric, read, *labels)
        self._observers = (*self._observers, observer)

    def record(self, metric: Metric, value: float = 1.0, *labels: str) -> None:
        """Add to a counter, or put a value into a histogram."""
        for observer in self._observers:
            observer.record(metric, value, *labels)

    def watch(self, metric: Metric, read: Callable[[], float], *labels: str) -> None:
        """Have a value read whenever somebody looks."""
        self._watched.append((metric, read, labels))
        for observer in self._observers:
            observer.watch(metric, read, *labels)

    @contextmanager
    def stage(self, metric: Metric, stage: str) -> Iterator[None]:
        """Make a span of what is done in here, and record its seconds."""
        began = time.perf_counter()
        try:
            with tracing.span(f"kosmos.{stage}"):
                yield
        finally:
            self.record(metric, time.perf_counter() - began, stage)

    @contextmanager
    def retrieving(self) -> Iterator[None]:
        """Tell of errors that end a question in here."""
        try:
            yield
        except KosmosError as error:
            self.record(RETRIEVAL_FAILURES, 1.0, type(error).__name__)
            raise

    def assembling(self) -> AbstractContextManager[None]:
        """Time how a context is put together."""
        return self.stage(RETRIEVAL_STAGE_SECONDS, "context")

    def answered(self, seconds: float, stage: str) -> None:
        """Tell how long an answer took to its first piece, or to its end."""
        self.record(ANSWER_SECONDS, seconds, stage)

    def retrieved(self, tenant: str, collection: str | None, found: SearchResult) -> None:
        """Tell of a retrieval."""
        total_ms = found.timings_ms["total"]
        if self._slow_ms and total_ms >= self._slow_ms:
            _log_slow(tenant, collection, found)
        if not self._observers:
            return
        for stage, milliseconds in found.timings_ms.items():
            self.record(RETRIEVAL_STAGE_SECONDS, milliseconds / 1000, stage)
        if found.incomplete_reason is not None:
            self.record(RETRIEVAL_SHORT_OF_K)
        self.record(TENANT_RETRIEVALS, 1.0, tenant)
        self.record(TENANT_RETRIEVAL_SECONDS, total_ms / 1000, tenant)


def _log_slow(tenant: str, collection: str | None, found: SearchResult) -> None:
    log.warning(
        "a retrieval took %.0f ms",
        found.timings_ms["total"],
        extra={
            "action": "slow_retrieval",
            "tenant": tenant,
            "collection": collection,
            "timings_ms": dict(found.timings_ms),
            "plan": {
                name: {"plan": leg.plan, "asked": leg.asked, "returned": leg.returned, "read": dict(leg.read)}
                for name, leg in found.retrievers.items()
            },
            "requested": found.requested,
            "returned": found.returned,
            "cached": found.cached,
            "degraded_stages": list(found.degraded_stages),
            "texts": {"question": found.question},
        },
    )
