"""Handler of maintenance jobs: due indexes, expired rows, audit seals, consistency checks."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from kosmos_rag.core.config import WorkerSettings
from kosmos_rag.core.errors import ConfigError, DatabaseUnavailable, IndexLocked, KosmosError
from kosmos_rag.core.telemetry.metrics import Metric
from kosmos_rag.core.types import EVERYONE, IndexInfo, Job, Outcome
from kosmos_rag.engine.audit import TenantAudit
from kosmos_rag.engine.job_kinds import WingMaintenance
from kosmos_rag.indexing.maintenance import IndexMaintenance
from kosmos_rag.storage.audit.partitions import PartitionRotation
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.sync_runs import SyncRuns
from kosmos_rag.storage.queue.uploads import UploadStore
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef
from kosmos_rag.worker.channel import CounterBuffer, SupervisorChannel
from kosmos_rag.worker.metrics import (
    AUDIT_LAG_SECONDS,
    INDEX_DUE,
    INDEX_RECALL,
    INDEX_UNSEGMENTED_CHUNKS,
    MAINTENANCE_FAILURES,
)

log = logging.getLogger("kosmos_rag.worker")

ABANDONED_UPLOAD_AGE = timedelta(days=1)
BUILD_TIMEOUT_S = 6 * 3600.0
"""Heartbeat timeout of a build: hnsw over millions of vectors takes hours without progress."""

_GAUGE_ROUNDS = 3
"""Rounds of maintenance for which a gauge keeps its value."""

SEAL_TIMEOUT_S = 3600.0
"""Heartbeat timeout of sealing: the first seals of a large log take long."""


class MaintenanceHandler:
    """Runs maintenance of one tenant at a time."""

    def __init__(
        self,
        database: Database,
        indexes: IndexMaintenance,
        tasks: Sequence[WingMaintenance],
        limits: WorkerSettings,
    ) -> None:
        self._database = database
        self._indexes = indexes
        self._tasks = tasks
        self._limits = limits
        self._sync_runs = SyncRuns(database.worker)
        self._partitions = PartitionRotation(database, keep_months=limits.keep_audit_months)
        self._warned = False
        self._hold_s = _GAUGE_ROUNDS * limits.maintenance_every_s

    def run(self, job: Job, channel: SupervisorChannel) -> CounterBuffer:
        """Run a maintenance job."""
        owner = TenantRef(id=job.tenant_id, name=job.tenant)
        if job.kind == kinds.RECONCILE:
            counts = self._reconcile(owner)
        elif job.kind == kinds.AUDIT:
            counts = self._seal(owner, channel)
        else:
            counts = self._maintain(owner, channel)
        channel.queue.finish({job.token: Outcome.DONE})
        return counts

    def _maintain(self, owner: TenantRef, channel: SupervisorChannel) -> CounterBuffer:
        """Run each step, also after the failure of another one.

        A model server that is away ends no removal of old rows, and no canary of isolation.
        """
        counts = CounterBuffer()
        with self._continue_after("indexes", owner, counts):
            self._build(owner, channel)
        with self._continue_after("rows", owner, counts):
            self._prune(owner, channel)
        for task in self._tasks:
            with self._continue_after("wings", owner, counts):
                channel.report_counts(task.run(owner.name, channel))
        return counts

    @contextmanager
    def _continue_after(self, step: str, owner: TenantRef, counts: CounterBuffer) -> Iterator[None]:
        try:
            yield
        except DatabaseUnavailable:
            raise
        except KosmosError as error:
            counts.add(MAINTENANCE_FAILURES.name, 1.0, step)
            log.error(
                "maintenance of %s failed: %s", owner.name, type(error).__name__,
                extra={
                    "action": "maintenance_failed", "tenant": owner.name, "step": step, "texts": {"error": str(error)}
                },
            )  # fmt: skip

    def _prune(self, owner: TenantRef, channel: SupervisorChannel) -> None:
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            UploadStore(connection, owner.id).delete_abandoned(age=ABANDONED_UPLOAD_AGE)
            before = datetime.now(UTC) - timedelta(days=self._limits.keep_days)
            connection.execute(statement("prune_events"), {"tenant_id": owner.id, "before": before})
        channel.queue.prune(keep_days=self._limits.keep_days, keep_dead_days=self._limits.keep_dead_days)
        self._sync_runs.fail_abandoned(owner)
        self._sync_runs.prune(keep_days=self._limits.keep_days)

    def _reconcile(self, owner: TenantRef) -> CounterBuffer:
        orphans = count_orphans(self._database, owner)
        if inconsistent := {category: rows for category, rows in orphans.items() if rows}:
            log.error(
                "%s has inconsistent rows: %s",
                owner.name,
                inconsistent,
                extra={"action": "orphans", "tenant": owner.name},
            )
        counts = CounterBuffer()
        for category, rows in orphans.items():
            counts.add("orphans", rows, category)
        return counts

    def _seal(self, owner: TenantRef, channel: SupervisorChannel) -> CounterBuffer:
        audit = TenantAudit(self._database, owner, self._partitions)
        try:
            since = audit.find_oldest_unsealed()
            lag_s = (datetime.now(UTC) - since).total_seconds() if since else 0.0
            channel.report_gauges(owner.name, {AUDIT_LAG_SECONDS: max(0.0, lag_s)}, hold_s=self._hold_s)
            with channel.heartbeat(SEAL_TIMEOUT_S):
                audit.seal()
        except ConfigError as error:
            # Without database.admin_url the log stays in its default partition, and nothing is dropped. This concerns
            # all tenants until the process ends, so it is logged once.
            if not self._warned:
                log.warning("%s", error, extra={"action": "audit_partitions_skipped"})
            self._warned = True
        return CounterBuffer()

    def _build(self, owner: TenantRef, channel: SupervisorChannel) -> None:
        def report(step: str) -> None:
            channel.report_progress()
            log.info("%s", step, extra={"action": "index_build", "tenant": owner.name})

        indexes = None
        try:
            with channel.heartbeat(BUILD_TIMEOUT_S):
                indexes = self._indexes.build(owner, report)
        except IndexLocked as error:
            log.info("%s", error, extra={"action": "index_locked", "tenant": owner.name})
        except ConfigError as error:
            # Without database.admin_url vectors are scanned: slower, with the same results.
            log.warning("%s", error, extra={"action": "index_build_skipped", "tenant": owner.name})
        finally:
            # What is due is shown above all where it cannot be built.
            indexes = self._indexes.status(owner) if indexes is None else indexes
            channel.report_gauges(owner.name, _index_gauges(indexes), hold_s=self._hold_s)


def _index_gauges(indexes: Sequence[IndexInfo]) -> dict[Metric, float]:
    """Return the gauges of a tenant's indexes.

    Recall is missing if none was measured.
    """
    recalls = [recall for info in indexes if (recall := info.health.get("recall_at_10")) is not None]
    gauges: dict[Metric, float] = {
        INDEX_DUE: sum(info.due is not None for info in indexes),
        INDEX_UNSEGMENTED_CHUNKS: sum(info.rows for info in indexes if info.kind == "unsegmented"),
    }
    return gauges | ({INDEX_RECALL: min(recalls)} if recalls else {})


def count_orphans(database: Database, owner: TenantRef) -> Mapping[str, int]:
    """Count orphaned rows and wrong statistics, by category.

    All zero where the rows are consistent.
    """
    with database.worker.transaction(owner.id, [EVERYONE]) as connection:
        connection.execute(statement("no_statement_timeout"))
        rows = connection.execute(statement("orphans"), {"tenant_id": owner.id}).fetchall()
    return {category: int(count) for category, count in rows}
