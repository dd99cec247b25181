"""The audit log: events, their passages, and the seals over them.

No foreign keys: the log outlives documents and tenants. Both tables of the log are partitioned by month.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Date,
    Double,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from kosmos_rag.storage.tables.columns import collection, column, metadata, tenant_id, time

audit_events = Table(
    "audit_events",
    metadata,
    tenant_id(),
    column("id", Uuid),  # its first 48 bits are `at` in milliseconds: ids are in the order of time
    time("at"),
    column("position", BigInteger),  # rises over all rows of a tenant: the order of the seals
    column("kind", Text),
    column("outcome", Text),
    collection(null=True),  # null: all collections
    column("subject", Text, null=True),  # the reader, as the caller names them
    column("principals", ARRAY(Text)),
    column("question", Text, null=True),
    column("question_sha256", Text),
    column("search_query", Text, null=True),  # what was search_query for, where a conversation made it another question
    column("settings_hash", Text),  # hash of the settings of the answer
    column("cached", Boolean),
    column("milliseconds", Double),
    column("follows", Uuid, null=True),  # the record of the start of the same answer, if its end differs
    PrimaryKeyConstraint("tenant_id", "id", "at"),
    CheckConstraint("position > 0"),
    CheckConstraint("kind IN ('search', 'context', 'answer', 'query')"),
    CheckConstraint("outcome IN ('hits', 'none', 'refused')"),
    postgresql_partition_by="RANGE (at)",
)
Index("audit_events_position", audit_events.c.tenant_id, audit_events.c.position)
Index("audit_events_failed", audit_events.c.tenant_id, audit_events.c.at, postgresql_where=text("outcome <> 'hits'"))

# One row for each passage: row-level security lets an index serve the equality that finds who saw a document.
audit_passages = Table(
    "audit_passages",
    metadata,
    tenant_id(),
    column("event_id", Uuid),
    time("at"),
    column("rank", Integer),
    column("shown", Boolean),  # false: a hit that the context left out
    column("document_id", Uuid),
    column("version_id", Uuid),
    column("version", Integer),
    column("source", Text),
    column("source_hash", Uuid),  # MD5 of the source, which may be longer than an index takes
    column("chunk_ids", ARRAY(Uuid)),
    column("score", Double),
    PrimaryKeyConstraint("tenant_id", "event_id", "at", "rank"),
    Index("audit_passages_document", "tenant_id", "document_id", "at"),
    Index("audit_passages_source", "tenant_id", "source_hash", "at"),
    postgresql_partition_by="RANGE (at)",
)

# A seal covers the rows after the previous seal up to a position, all of one month. The seals form a hash chain.
audit_seals = Table(
    "audit_seals",
    metadata,
    tenant_id(),
    column("number", Integer),
    time("at"),
    column("month", Date),
    column("last_position", BigInteger),
    column("rows", BigInteger),
    column("rows_sha256", Text),
    column("sha256", Text),  # of all columns above and of the previous seal
    PrimaryKeyConstraint("tenant_id", "number"),
    CheckConstraint("number > 0"),
)
