"""Jobs that keep the collection of a schema up to date."""

import logging
import uuid
from collections import Counter
from datetime import timedelta

from kosmos_rag.core.errors import DatabaseUnavailable, SourceError
from kosmos_rag.core.types import EVERYONE, Job, Outcome
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.job_kinds import JobChannel, JobCounts
from kosmos_rag.engine.jobs import TenantJobs
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources import SchemaSource
from kosmos_rag.text2sql.job_kinds import SCHEMA
from kosmos_rag.text2sql.linking.grounder import BuildReport, SchemaGrounding

log = logging.getLogger("kosmos_rag.worker")

SYNC_TIMEOUT_S = 3600.0
"""Heartbeat timeout of a job: a large schema takes long to read and embed at first."""


def enqueue_sync(
    jobs: TenantJobs, source: SchemaSource, *, acl: tuple[str, ...] = (EVERYONE,), every: timedelta | None = None
) -> uuid.UUID:
    """Enqueue a job that updates the collection from a schema source.

    Returns the job's id. A source has one unfinished job in a collection; enqueued again, it takes the new recipes,
    samples, acl and interval.

    Args:
        jobs: Jobs of the tenant and the collection.
        source: Where the schema is read from.
        every: Interval between two runs; None for a single one.

    Raises:
        RequestError: The interval is out of range.
        DatabaseError: The job is not enqueued.
    """
    payload = {"schema": source.as_json(), "acl": list(acl)}
    return jobs.enqueue_job(SCHEMA, source.identity, payload, every=every)


class SchemaHandler:
    """Updates the documents of a schema in its collection.

    Document names follow from the schema, and only changed documents are written: running a job twice, or on two
    workers, has the same result as running it once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, job: Job, channel: JobChannel) -> JobCounts:
        """Read the schema of a job, and write the changed documents."""
        with channel.heartbeat(SYNC_TIMEOUT_S):
            report = self._sync(job)
        channel.finish(job)
        log.info(
            "schema synchronised: %d new, %d changed, %d removed, %d failed",
            report.ingest.new, report.ingest.changed, report.removed, len(report.ingest.failed),
            extra={
                "action": "schema_synced", "tenant": job.tenant, "job": job.id, "texts": {"database": report.database},
            },
        )  # fmt: skip
        return _counters(report)

    def _sync(self, job: Job) -> BuildReport:
        source, acl = SchemaSource.from_json(job.payload["schema"]), tuple(job.payload["acl"])
        tenant = self._engine.tenant(job.tenant, principals=acl, collection=job.collection)
        schema = _read(source)
        return SchemaGrounding(tenant).build(schema, source.read_recipes(schema), acl=acl)


def _read(source: SchemaSource) -> DatabaseSchema:
    try:
        return source.read()
    except DatabaseUnavailable as error:
        # The described database, not our own: a job that waits for our own is released at once, and would spin.
        raise SourceError("unavailable", str(error)) from error


def _counters(report: BuildReport) -> JobCounts:
    ingest, counts = report.ingest, Counter[tuple[str, str]]()
    outcomes = {Outcome.NEW: ingest.new, Outcome.CHANGED: ingest.changed, Outcome.UNCHANGED: ingest.unchanged}
    for outcome, count in {**outcomes, Outcome.REMOVED: report.removed}.items():
        counts["documents", outcome] += count
    counts["chunks", ""] += ingest.chunks
    for failure in ingest.failed:
        counts["failures", failure.code] += 1
    return counts
