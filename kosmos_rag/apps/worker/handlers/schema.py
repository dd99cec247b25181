"""Jobs about the schema of a database: read it, and bring the documents of its collection up to it."""

import logging

from kosmos_rag.apps.worker.channel import CounterBuffer, SupervisorChannel
from kosmos_rag.apps.worker.handlers import documents
from kosmos_rag.core.errors import DatabaseUnavailable, KosmosError, SourceError
from kosmos_rag.core.types import Job, Outcome
from kosmos_rag.engine.engine import Engine
from kosmos_rag.storage.tenants import TenantRef
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources import SchemaSource
from kosmos_rag.text2sql.linking.grounder import BuildReport, SchemaGrounding

log = logging.getLogger("kosmos_rag.apps.worker")

SYNCING_S = 3600.0
"""How long reading and embedding a large schema for the first time may take."""


class SchemaHandler:
    """Brings collections up to the schemas that they tell of.

    Documents are written under names that follow from the schema, and only where they differ: a job that is done twice,
    or by two workers, leaves what it leaves when done once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, job: Job, channel: SupervisorChannel) -> None:
        """Read the job's source, and write what has changed."""
        try:
            with channel.heartbeat(SYNCING_S):
                done = self._synced(job)
            channel.queue.finish({job.token: Outcome.DONE})
        except DatabaseUnavailable:
            return channel.release([job])
        except KosmosError as error:
            return documents.fail(channel, job, error)
        except Exception as error:  # noqa: BLE001 — logged, and the worker goes on
            return documents.fail_unexpected(channel, job, error)
        log.info(
            "a schema: %d new, %d changed, %d removed, %d failed",
            done.ingest.new, done.ingest.changed, done.removed, len(done.ingest.failed),
            extra={
                "action": "schema_synced", "tenant": job.tenant, "job": job.id, "texts": {"database": done.database},
            },
        )  # fmt: skip
        return channel.report_ended([job], _counts(done))

    def _synced(self, job: Job) -> BuildReport:
        self._engine.parts.ingest_pipeline.require_preset(
            TenantRef(id=job.tenant_id, name=job.tenant), job.collection, job.payload.get("preset")
        )
        source, readers = SchemaSource.from_json(job.payload["schema"]), tuple(job.payload["acl"])
        schema = _read(source)
        scope = self._engine.tenant(job.tenant, principals=readers, collection=job.collection)
        return SchemaGrounding(scope).build(schema, source.read_recipes(schema), acl=readers)


def _read(source: SchemaSource) -> DatabaseSchema:
    try:
        return source.read()
    except DatabaseUnavailable as error:
        # Theirs and not ours: a job that waits for ours goes back into the queue at once, and would spin.
        raise SourceError("unavailable", str(error)) from error


def _counts(done: BuildReport) -> CounterBuffer:
    report, counts = done.ingest, CounterBuffer()
    found = {Outcome.NEW: report.new, Outcome.CHANGED: report.changed, Outcome.UNCHANGED: report.unchanged}
    for outcome, documents_of in {**found, Outcome.REMOVED: done.removed}.items():
        counts.add("documents", documents_of, outcome)
    counts.add("chunks", report.chunks)
    for failure in report.failed:
        counts.add("failures", label=failure.code)
    return counts
