"""Handler of permission jobs: updates the readers of documents from a feed."""

import logging

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import DatabaseUnavailable
from kosmos_rag.core.types import Job, Outcome, PermissionReport
from kosmos_rag.ingestion.permissions import PermissionSync
from kosmos_rag.ingestion.sources.spec import validate_feed
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.tenants import TenantRef
from kosmos_rag.worker.channel import SupervisorChannel

log = logging.getLogger("kosmos_rag.worker")

READING_S = 7200.0
"""How long reading a large feed, and the batches after it, may take: an hour, and one to repeat the pass."""


class PermissionsHandler:
    """Runs passes of permission feeds.

    A job that is done twice, or by two workers, leaves what it leaves when done once: a later pass ends an earlier one.
    """

    def __init__(self, database: Database, settings: IngestionSettings) -> None:
        self._sync = PermissionSync(database, settings)

    def run(self, job: Job, channel: SupervisorChannel) -> None:
        """Make one pass."""
        try:
            with channel.heartbeat(READING_S):
                report = self._run_pass(job, channel)
            channel.queue.finish({job.token: Outcome.DONE})
        except DatabaseUnavailable as error:
            log.warning("%s", error, extra={"action": "permissions_interrupted", "tenant": job.tenant, "job": job.id})
            raise
        log.info(
            "permissions: %d documents named, %d changed, %d no longer named, %d unknown containers",
            report.documents, report.changed, report.unnamed, len(report.unknown_containers),
            extra={"action": "permissions_synced", "tenant": job.tenant, "job": job.id, "texts": {"feed": job.key}},
        )  # fmt: skip

    def _run_pass(self, job: Job, channel: SupervisorChannel) -> PermissionReport:
        owner = TenantRef(id=job.tenant_id, name=job.tenant)
        spec = validate_feed(job.payload["feed"])
        return self._sync.run(owner, job.collection, spec, before_batch=lambda: channel.require_running(job))
