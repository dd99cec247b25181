"""Events of documents and sources, for subscribers."""

from sqlalchemy import BigInteger, Boolean, CheckConstraint, PrimaryKeyConstraint, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from kosmos_rag.storage.tables.columns import collection, column, metadata, tenant_id, tenant_key, time

# Its row is locked from the record of an event to the commit: sequences are in the order of commits.
event_streams = Table(
    "event_streams",
    metadata,
    tenant_id(),
    column("recording", Boolean),
    column("last_sequence", BigInteger),
    PrimaryKeyConstraint("tenant_id"),
    CheckConstraint("last_sequence >= 0"),
    tenant_key(),
)

events = Table(
    "events",
    metadata,
    tenant_id(),
    column("sequence", BigInteger),  # without gaps but that of a pause
    time("at"),
    column("type", Text),
    collection(),
    column("data", JSONB),
    PrimaryKeyConstraint("tenant_id", "sequence"),
    tenant_key(),
)
