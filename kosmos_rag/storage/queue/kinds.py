"""The kinds of jobs there are."""

from datetime import timedelta

from kosmos_rag.core.config import WorkerSettings

DOCUMENT = "document"
"""One document: load, parse, chunk, embed, publish."""
SYNC = "sync"
"""One pass over a source."""
SCHEMA = "schema"
"""The schema of a database read, and its documents brought up to it."""
MAINTAIN = "maintain"
"""A round of maintenance of a tenant: indexes, leftovers, old jobs."""
RECONCILE = "reconcile"
"""A count of a tenant's rows: does it all add up?"""

AUDIT = "audit"
"""Seals over the log of retrievals, and its months."""

UPKEEP = (MAINTAIN, RECONCILE, AUDIT)
"""What every tenant has whether it wants to or not: nothing that whoever ingests may call off."""
ALL = (DOCUMENT, SYNC, SCHEMA, *UPKEEP)

RECONCILE_EVERY = timedelta(days=1)


def periodic(settings: WorkerSettings) -> dict[str, timedelta]:
    """Return the kinds of which every tenant has one job, again and again, with the time between two."""
    pause = timedelta(seconds=settings.maintenance_every_s)
    return {MAINTAIN: pause, RECONCILE: RECONCILE_EVERY, AUDIT: pause}
