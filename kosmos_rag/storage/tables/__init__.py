"""The tables as SQLAlchemy metadata, for the linter and a test.

The test compares them with the migrations.

Queries do not use this package; they are in sql/*.sql.
"""

from kosmos_rag.storage.tables import (
    access,
    answer_checks,
    audit,
    documents,
    erasures,
    evaluations,
    events,
    experiments,
    feedback,
    files,
    gaps,
    indexes,
    jobs,
    judging,
    monitor,
    permissions,
    scim,
    usage,
    webhooks,
)
from kosmos_rag.storage.tables.columns import metadata

__all__ = [
    "access",
    "answer_checks",
    "audit",
    "documents",
    "erasures",
    "evaluations",
    "events",
    "experiments",
    "feedback",
    "files",
    "gaps",
    "indexes",
    "jobs",
    "judging",
    "metadata",
    "monitor",
    "permissions",
    "scim",
    "usage",
    "webhooks",
]
