"""The tables as SQLAlchemy metadata: what the migrations must add up to, and what the linter reads.

Queries do not go through here; they are in sql/*.sql. A test compares this package with a migrated database.
"""

from kosmos_rag.storage.tables import (
    access,
    audit,
    documents,
    evaluations,
    experiments,
    feedback,
    indexes,
    jobs,
    monitor,
)
from kosmos_rag.storage.tables.columns import metadata

__all__ = [
    "access",
    "audit",
    "documents",
    "evaluations",
    "experiments",
    "feedback",
    "indexes",
    "jobs",
    "metadata",
    "monitor",
]
