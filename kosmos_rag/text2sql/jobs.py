"""Jobs that keep the collection of a schema up to date."""

from datetime import timedelta

from kosmos_rag.core.types import EVERYONE
from kosmos_rag.engine.jobs import TenantJobs
from kosmos_rag.storage.queue import kinds
from kosmos_rag.text2sql.catalog.sources import SchemaSource


def enqueue_sync(
    jobs: TenantJobs, source: SchemaSource, *, acl: tuple[str, ...] = (EVERYONE,), every: timedelta | None = None
) -> int:
    """Have a worker update the collection from the schema of a source. Returns the job's id.

    A source has one unfinished job in a collection; enqueued again, it takes the new recipes, samples, acl, interval.

    Args:
        jobs: of the tenant and the collection.
        source: where the schema is read from.
        acl: principals that may read the schema.
        every: interval between two runs; None for a single one.

    Raises:
        RequestError: the interval is out of range.
        DatabaseError: the job is not enqueued.
    """
    payload = {"schema": source.as_json(), "acl": list(acl)}
    return jobs.enqueue_job(kinds.SCHEMA, source.identity, payload, every=every)
