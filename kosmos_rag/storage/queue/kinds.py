"""The kinds of jobs."""

from datetime import timedelta

from kosmos_rag.core.config import WorkerSettings

DOCUMENT = "document"
"""Load, parse, chunk, embed and publish one document."""
SYNC = "sync"
"""List a source, and enqueue its new and changed documents."""
PERMISSIONS = "permissions"
"""Read a permission feed, and update who may read its documents."""
MAINTAIN = "maintain"
"""Maintain a tenant: indexes, leftovers, old jobs."""
RECONCILE = "reconcile"
"""Check the row counts of a tenant against each other."""

AUDIT = "audit"
"""Seal the audit log, and rotate its partitions."""

PASSES = (SYNC, PERMISSIONS)
"""Passes over sources and permission feeds."""
INGESTION = (DOCUMENT, *PASSES)
"""Jobs that bring documents and their permissions in."""
UPKEEP = (MAINTAIN, RECONCILE, AUDIT)
"""Periodic jobs of every tenant."""
OPERATORS_ONLY = (PERMISSIONS, *UPKEEP)
"""An ingesting client may not cancel them."""
KERNEL = (*INGESTION, *UPKEEP)
"""All kinds but those that wings add."""

RECONCILE_EVERY = timedelta(days=1)


def periodic(settings: WorkerSettings) -> dict[str, timedelta]:
    """Return the interval of each periodic kind."""
    interval = timedelta(seconds=settings.maintenance_every_s)
    return {MAINTAIN: interval, RECONCILE: RECONCILE_EVERY, AUDIT: interval}
