"""A channel of a worker for the maintenance of the tenant acme."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from kosmos_rag.core.telemetry.metrics import Metric
from kosmos_rag.core.types import Job
from kosmos_rag.engine.job_kinds import JobCounts


class GaugeChannel:
    """A channel that keeps the gauges."""

    def __init__(self) -> None:
        self.values: dict[Metric, float] = {}

    def report_progress(self) -> None:
        return

    def heartbeat(self, limit_s: float) -> AbstractContextManager[None]:
        assert limit_s > 0
        return nullcontext()

    def report_gauges(self, tenant: str, values: Mapping[Metric, float], *, hold_s: float) -> None:
        assert tenant == "acme"
        assert hold_s > 0
        self.values.update(values)

    def report_counts(self, counts: JobCounts) -> None:
        raise AssertionError(counts)

    def require_running(self, job: Job) -> None:
        raise AssertionError(job)

    def finish(self, job: Job) -> None:
        raise AssertionError(job)
