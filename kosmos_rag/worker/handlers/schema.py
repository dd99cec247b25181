"""Handler of schema jobs: updates the documents of a schema."""

import logging

from kosmos_rag.core.errors import DatabaseUnavailable, SourceError
from kosmos_rag.core.types import Job, Outcome
from kosmos_rag.engine.engine import Engine
from kosmos_rag.storage.tenants import TenantRef
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources import SchemaSource
from kosmos_rag.text2sql.linking.grounder import BuildReport, SchemaGrounding
from kosmos_rag.worker.channel import CounterBuffer, SupervisorChannel

log = logging.getLogger("kosmos_rag.worker")

SYNC_TIMEOUT_S = 3600.0
"""Heartbeat timeout of a job: a large schema takes long to read and embed at first."""


class SchemaHandler:
    """Updates the documents of a schema in its collection.

    Document names follow from the schema, and only changed documents are written: running a job twice, or on two
    workers, has the same result as running it once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, job: Job, channel: SupervisorChannel) -> CounterBuffer:
        """Read the schema of a job, and write the changed documents."""
        with channel.heartbeat(SYNC_TIMEOUT_S):
            report = self._sync(job)
        channel.queue.finish({job.token: Outcome.DONE})
        log.info(
            "schema synchronised: %d new, %d changed, %d removed, %d failed",
            report.ingest.new, report.ingest.changed, report.removed, len(report.ingest.failed),
            extra={
                "action": "schema_synced", "tenant": job.tenant, "job": job.id, "texts": {"database": report.database},
            },
        )  # fmt: skip
        return _counters(report)

    def _sync(self, job: Job) -> BuildReport:
        self._engine.parts.ingest_pipeline.require_preset(
            TenantRef(id=job.tenant_id, name=job.tenant), job.collection, job.payload.get("preset")
        )
        source, acl = SchemaSource.from_json(job.payload["schema"]), tuple(job.payload["acl"])
        schema = _read(source)
        tenant = self._engine.tenant(job.tenant, principals=acl, collection=job.collection)
        return SchemaGrounding(tenant).build(schema, source.read_recipes(schema), acl=acl)


def _read(source: SchemaSource) -> DatabaseSchema:
    try:
        return source.read()
    except DatabaseUnavailable as error:
        # The described database, not our own: a job that waits for our own is released at once, and would spin.
        raise SourceError("unavailable", str(error)) from error


def _counters(report: BuildReport) -> CounterBuffer:
    ingest, counts = report.ingest, CounterBuffer()
    outcomes = {Outcome.NEW: ingest.new, Outcome.CHANGED: ingest.changed, Outcome.UNCHANGED: ingest.unchanged}
    for outcome, count in {**outcomes, Outcome.REMOVED: report.removed}.items():
        counts.add("documents", count, outcome)
    counts.add("chunks", ingest.chunks)
    for failure in ingest.failed:
        counts.add("failures", label=failure.code)
    return counts
