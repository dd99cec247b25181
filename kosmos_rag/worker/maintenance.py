"""Maintenance of each tenant, again and again: indexes that are due, what nobody needs, what does not add up."""

import logging
from collections.abc import Mapping
from datetime import timedelta

from kosmos_rag.audit import Months, TenantAudit
from kosmos_rag.config import WorkerSettings
from kosmos_rag.errors import ConfigError, DatabaseUnavailable, IndexesBusy, KosmosError
from kosmos_rag.indexing.lifecycle import Indexes
from kosmos_rag.jobs import kinds
from kosmos_rag.jobs.ledger import Ledgers
from kosmos_rag.jobs.uploads import abandoned_uploads, delete_uploads
from kosmos_rag.records import EVERYONE, Job, Outcome
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenancy import Tenant
from kosmos_rag.worker import documents
from kosmos_rag.worker.desk import Counts, Desk

log = logging.getLogger("kosmos_rag.worker")

ABANDONED = timedelta(days=1)
BUILDING_S = 6 * 3600.0
"""How long an index may be built: hnsw over millions of vectors takes hours, and says nothing meanwhile."""

SEALING_S = 3600.0
"""How long the first seals over a large log may take."""


class MaintenanceWork:
    """Looks after one tenant at a time."""

    def __init__(self, database: Database, indexes: Indexes, limits: WorkerSettings) -> None:
        self._database = database
        self._indexes = indexes
        self._limits = limits
        self._ledgers = Ledgers(database.worker)
        self._months = Months(database, keep_months=limits.keep_audit_months)
        self._told = False

    def run(self, job: Job, desk: Desk) -> None:
        """Do a round for the job's tenant."""
        owner = Tenant(id=job.tenant_id, name=job.tenant)
        try:
            if job.kind == kinds.RECONCILE:
                counts = self._reconcile(owner)
            elif job.kind == kinds.AUDIT:
                counts = self._seal(owner, desk)
            else:
                counts = self._maintain(owner, desk)
            desk.queue.finish({job.token: Outcome.DONE})
        except DatabaseUnavailable:
            return desk.give_back([job])
        except KosmosError as error:
            return documents.fail(desk, job, error)
        except Exception as error:  # noqa: BLE001 — logged, and the worker goes on
            return documents.fail_unexpected(desk, job, error)
        return desk.ended([job], counts)

    def _maintain(self, owner: Tenant, desk: Desk) -> Counts:
        self._build(owner, desk)
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            delete_uploads(connection, owner.id, abandoned_uploads(connection, owner.id, age=ABANDONED))
        desk.queue.prune(keep_days=self._limits.keep_days, keep_dead_days=self._limits.keep_dead_days)
        self._ledgers.abandon(owner)
        self._ledgers.prune(keep_days=self._limits.keep_days)
        return Counts()

    def _reconcile(self, owner: Tenant) -> Counts:
        found = orphans(self._database, owner)
        if left := {what: rows for what, rows in found.items() if rows}:
            log.error("%s does not add up: %s", owner.name, left, extra={"action": "orphans", "tenant": owner.name})
        counts = Counts()
        for what, rows in found.items():
            counts.add("orphans", rows, what)
        return counts

    def _seal(self, owner: Tenant, desk: Desk) -> Counts:
        audit = TenantAudit(self._database, owner, self._months)
        try:
            with desk.heartbeat(SEALING_S):
                audit.seal()
        except ConfigError as error:
            # Without an administrator's address the log goes on in its default partition, and nothing is dropped. That
            # is so for all tenants, and for as long as this process runs: it is said once.
            if not self._told:
                log.warning("%s", error, extra={"action": "audit_months_left"})
            self._told = True
        return Counts()

    def _build(self, owner: Tenant, desk: Desk) -> None:
        def said(step: str) -> None:
            desk.progress()
            log.info("%s", step, extra={"action": "index_build", "tenant": owner.name})

        try:
            with desk.heartbeat(BUILDING_S):
                self._indexes.build(owner, said)
        except IndexesBusy:
            log.info("the indexes of %s are worked on elsewhere", owner.name, extra={"tenant": owner.name})
        except ConfigError as error:
            # Without an administrator's address vectors are scanned: slower, and right.
            log.warning("%s", error, extra={"action": "index_build_left", "tenant": owner.name})


def orphans(database: Database, owner: Tenant) -> Mapping[str, int]:
    """Count what belongs to nothing, and what was counted wrongly; all zero where a tenant's rows add up."""
    with database.worker.transaction(owner.id, [EVERYONE]) as connection:
        connection.execute(statement("no_statement_timeout"))
        rows = connection.execute(statement("orphans"), {"tenant_id": owner.id}).fetchall()
    return {what: int(count) for what, count in rows}
