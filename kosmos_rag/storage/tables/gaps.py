"""Questions that were not answered."""

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import CheckConstraint, Integer, PrimaryKeyConstraint, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY

from kosmos_rag.storage.tables.columns import collection, column, metadata, tenant_id, tenant_key, time

unanswered_questions = Table(
    "unanswered_questions",
    metadata,
    tenant_id(),
    column("id", Uuid),  # follows from reader, collection and question: one row for each
    time("first_at"),
    time("last_at"),
    column("times", Integer),
    collection(null=True),  # null: all of them were asked
    column("subject", Text, null=True),  # null: the caller named no reader
    column("principals", ARRAY(Text)),  # of the reader: it is asked again as them
    column("question", Text),
    column("reason", Text),
    column("group_id", Uuid, null=True),  # null until maintenance has grouped it
    column("vector", HALFVEC, null=True),
    column("vector_model", Text, null=True),
    time("checked_at"),
    column("checked_state", Text, null=True),  # of the documents and settings at the last check; null: not checked
    time("answered_at", null=True),  # null: not answered
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("reason IN ('none', 'refused', 'declined')"),
    CheckConstraint("times > 0"),
    tenant_key(),
)
