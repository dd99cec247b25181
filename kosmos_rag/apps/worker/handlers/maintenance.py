"""Maintenance of each tenant, again and again: indexes that are due, what nobody needs, what does not add up."""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from kosmos_rag.apps.worker.channel import CounterBuffer, SupervisorChannel
from kosmos_rag.apps.worker.handlers import documents
from kosmos_rag.apps.worker.handlers.monitor import MonitorHandler
from kosmos_rag.core.config import WorkerSettings
from kosmos_rag.core.errors import ConfigError, DatabaseUnavailable, IndexLocked, KosmosError
from kosmos_rag.core.telemetry.metrics import AUDIT_LAG_SECONDS, INDEX_DUE, INDEX_RECALL, INDEX_TAIL_CHUNKS, Metric
from kosmos_rag.core.types import EVERYONE, IndexInfo, Job, Outcome
from kosmos_rag.engine.audit import TenantAudit
from kosmos_rag.evaluation.experiments.store import prune
from kosmos_rag.indexing.maintenance import IndexMaintenance
from kosmos_rag.storage.audit.partitions import PartitionRotation
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.sync_runs import SyncRuns
from kosmos_rag.storage.queue.uploads import abandoned_uploads, delete_uploads
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

log = logging.getLogger("kosmos_rag.apps.worker")

ABANDONED = timedelta(days=1)
BUILDING_S = 6 * 3600.0
"""How long an index may be built: hnsw over millions of vectors takes hours, and says nothing meanwhile."""

_ROUNDS = 3
"""Rounds of maintenance for which what one measured holds, unless it is measured again."""

SEALING_S = 3600.0
"""How long the first seals over a large log may take."""


class MaintenanceHandler:
    """Looks after one tenant at a time."""

    def __init__(
        self, database: Database, indexes: IndexMaintenance, monitoring: MonitorHandler, limits: WorkerSettings
    ) -> None:
        self._database = database
        self._indexes = indexes
        self._monitoring = monitoring
        self._limits = limits
        self._sync_runs = SyncRuns(database.worker)
        self._months = PartitionRotation(database, keep_months=limits.keep_audit_months)
        self._told = False
        self._hold_s = _ROUNDS * limits.maintenance_every_s

    def run(self, job: Job, channel: SupervisorChannel) -> None:
        """Do a round for the job's tenant."""
        owner = TenantRef(id=job.tenant_id, name=job.tenant)
        try:
            if job.kind == kinds.RECONCILE:
                counts = self._reconcile(owner)
            elif job.kind == kinds.AUDIT:
                counts = self._seal(owner, channel)
            else:
                counts = self._maintain(owner, channel)
            channel.queue.finish({job.token: Outcome.DONE})
        except DatabaseUnavailable:
            return channel.release([job])
        except KosmosError as error:
            return documents.fail(channel, job, error)
        except Exception as error:  # noqa: BLE001 — logged, and the worker goes on
            return documents.fail_unexpected(channel, job, error)
        return channel.report_ended([job], counts)

    def _maintain(self, owner: TenantRef, channel: SupervisorChannel) -> CounterBuffer:
        self._build(owner, channel)
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            delete_uploads(connection, owner.id, abandoned_uploads(connection, owner.id, age=ABANDONED))
        channel.queue.prune(keep_days=self._limits.keep_days, keep_dead_days=self._limits.keep_dead_days)
        self._sync_runs.fail_abandoned(owner)
        self._sync_runs.prune(keep_days=self._limits.keep_days)
        prune(self._database.worker, owner, keep_days=self._limits.keep_experiment_days)
        return self._monitoring.round(owner, channel)

    def _reconcile(self, owner: TenantRef) -> CounterBuffer:
        found = orphans(self._database, owner)
        if left := {what: rows for what, rows in found.items() if rows}:
            log.error("%s does not add up: %s", owner.name, left, extra={"action": "orphans", "tenant": owner.name})
        counts = CounterBuffer()
        for what, rows in found.items():
            counts.add("orphans", rows, what)
        return counts

    def _seal(self, owner: TenantRef, channel: SupervisorChannel) -> CounterBuffer:
        audit = TenantAudit(self._database, owner, self._months)
        try:
            since = audit.unsealed_since()
            lag_s = (datetime.now(UTC) - since).total_seconds() if since else 0.0
            channel.report_gauges(owner.name, {AUDIT_LAG_SECONDS: max(0.0, lag_s)}, hold_s=self._hold_s)
            with channel.heartbeat(SEALING_S):
                audit.seal()
        except ConfigError as error:
            # Without an administrator's address the log goes on in its default partition, and nothing is dropped. That
            # is so for all tenants, and for as long as this process runs: it is said once.
            if not self._told:
                log.warning("%s", error, extra={"action": "audit_months_left"})
            self._told = True
        return CounterBuffer()

    def _build(self, owner: TenantRef, channel: SupervisorChannel) -> None:
        def said(step: str) -> None:
            channel.report_progress()
            log.info("%s", step, extra={"action": "index_build", "tenant": owner.name})

        try:
            with channel.heartbeat(BUILDING_S):
                after = self._indexes.build(owner, said)
            channel.report_gauges(owner.name, _health_of(after), hold_s=self._hold_s)
        except IndexLocked:
            log.info(
                "the indexes of %s are worked on elsewhere", owner.name,
                extra={"action": "indexes_busy", "tenant": owner.name},
            )  # fmt: skip
        except ConfigError as error:
            # Without an administrator's address vectors are scanned: slower, and right.
            log.warning("%s", error, extra={"action": "index_build_left", "tenant": owner.name})


def _health_of(indexes: Sequence[IndexInfo]) -> dict[Metric, float]:
    """Return what is told of a tenant's indexes after a round; of recall nothing where none was measured."""
    recalls = [recall for info in indexes if (recall := info.health.get("recall_at_10")) is not None]
    health: dict[Metric, float] = {
        INDEX_DUE: sum(info.due is not None for info in indexes),
        INDEX_TAIL_CHUNKS: sum(info.rows for info in indexes if info.kind == "unsegmented"),
    }
    return health | ({INDEX_RECALL: min(recalls)} if recalls else {})


def orphans(database: Database, owner: TenantRef) -> Mapping[str, int]:
    """Count what belongs to nothing, and what was counted wrongly; all zero where a tenant's rows add up."""
    with database.worker.transaction(owner.id, [EVERYONE]) as connection:
        connection.execute(statement("no_statement_timeout"))
        rows = connection.execute(statement("orphans"), {"tenant_id": owner.id}).fetchall()
    return {what: int(count) for what, count in rows}
