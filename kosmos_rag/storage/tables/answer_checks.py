"""Sampled answers and what their checks found."""

from sqlalchemy import Boolean, CheckConstraint, PrimaryKeyConstraint, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from kosmos_rag.storage.tables.columns import collection, column, metadata, tenant_id, tenant_key, time

answer_samples = Table(
    "answer_samples",
    metadata,
    tenant_id(),
    column("id", Uuid),
    time("at"),
    collection(null=True),  # null: all of them were asked
    column("subject", Text, null=True),  # null: the caller named no reader
    column("principals", ARRAY(Text)),  # of the reader, until the check
    column("retrieval_id", Uuid, null=True),  # for feedback; no reference: the log is dropped by months
    column("question_sha256", Text),  # the same; the question is not stored
    column("is_refused", Boolean),
    column("answer", JSONB, null=True),  # until the check; null: checked, or refused
    column("sources", ARRAY(Text)),  # of the documents of its context, until the check
    column("verdict", Text, null=True),
    time("checked_at", null=True),
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("verdict IN ('supported', 'unsupported', 'outdated')"),
    tenant_key(),
)
