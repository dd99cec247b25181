"""Ratings of passages and answers by readers."""

from sqlalchemy import CheckConstraint, Index, PrimaryKeyConstraint, Table, Text, Uuid, text

from kosmos_rag.storage.tables.columns import collection, column, metadata, tenant_id, tenant_key, time

feedback = Table(
    "feedback",
    metadata,
    tenant_id(),
    column("id", Uuid),  # follows from who rated what: a second word on it replaces the first
    time("at"),
    column("subject", Text),
    collection(null=True),  # null: all of them were asked
    column("retrieval_id", Uuid, null=True),  # no reference: the log is dropped by months
    column("question", Text, null=True),
    column("question_sha256", Text),
    column("rating", Text),
    column("chunk_id", Uuid, null=True),  # null: the answer as a whole; no reference: chunks go with their version
    column("source", Text, null=True),
    column("comment", Text, null=True),
    column("reason", Text, null=True),
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("rating IN ('up', 'down', 'click')"),
    CheckConstraint("reason IN ('wrong', 'incomplete', 'outdated', 'not_covered')"),
    tenant_key(),
)
Index("feedback_down", feedback.c.tenant_id, feedback.c.at, postgresql_where=text("rating = 'down'"))
