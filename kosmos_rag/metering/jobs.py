"""The part of maintenance that keeps usage small, and records what is stored."""

from datetime import UTC, datetime

from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.job_kinds import JobChannel, JobCounts
from kosmos_rag.metering.settings import MeteringSettings
from kosmos_rag.metering.store import UsageStore


class UsageMaintenance:
    """Records what a tenant stores, and joins and deletes old rows of usage."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._enabled = engine.settings.section(MeteringSettings).enabled

    def run(self, tenant: str, channel: JobChannel) -> JobCounts:  # noqa: ARG002 — takes no time to report
        """Maintain the usage of a tenant. Raises DatabaseError."""
        store, now = UsageStore(self._engine.tenant(tenant)), datetime.now(UTC)
        if self._enabled:
            store.record_stored(now)
        store.join_hours(now)
        store.prune(now)
        return {}
