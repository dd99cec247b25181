"""The part of maintenance that keeps usage small, and records what is stored."""

from datetime import UTC, date, datetime

from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.job_kinds import JobChannel, JobCounts
from kosmos_rag.metering.settings import MeteringSettings
from kosmos_rag.metering.store import UsageStore

_JOINED_DAYS = 7
"""Age of hours that each round reads again; all that are kept, 400 days, are read once a day."""


class UsageMaintenance:
    """Records what a tenant stores, and joins and deletes old rows of usage."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._enabled = engine.settings.section(MeteringSettings).enabled
        self._joined_on: dict[str, date] = {}
        """Day on which all hours of a tenant were joined last."""

    def run(self, tenant: str, channel: JobChannel) -> JobCounts:  # noqa: ARG002 — takes no time to report
        """Maintain the usage of a tenant. Raises DatabaseError."""
        store, now = UsageStore(self._engine.tenant(tenant)), datetime.now(UTC)
        if self._enabled:
            store.record_stored(now)
        is_joined = self._joined_on.get(tenant) == now.date()
        store.join_hours(now, days=_JOINED_DAYS if is_joined else None)
        self._joined_on[tenant] = now.date()
        store.prune(now)
        return {}
