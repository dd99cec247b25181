"""Jobs that keep the collection of a schema up to date."""

import uuid
from datetime import timedelta

from kosmos_rag.core.types import EVERYONE
from kosmos_rag.engine.jobs import TenantJobs
from kosmos_rag.storage.queue import kinds
from kosmos_rag.text2sql.catalog.sources import SchemaSource


def enqueue_sync(
    jobs: TenantJobs, source: SchemaSource, *, acl: tuple[str, ...] = (EVERYONE,), every: timedelta | None = None
) -> uuid.UUID:
    """Enqueue a job that updates the collection from a schema source.

    Returns the job's id. A source has one unfinished job in a collection; enqueued again, it takes the new recipes,
    samples, acl and interval.

    Args:
        jobs: Jobs of the tenant and the collection.
        source: Where the schema is read from.
        acl: Principals that may read the schema.
        every: Interval between two runs; None for a single one.

    Raises:
        RequestError: The interval is out of range.
        DatabaseError: The job is not enqueued.
    """
    payload = {"schema": source.as_json(), "acl": list(acl)}
    return jobs.enqueue_job(kinds.SCHEMA, source.identity, payload, every=every)
