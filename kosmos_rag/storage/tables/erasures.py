"""The records of erasures. No foreign key: a record outlives its tenant."""

from sqlalchemy import CheckConstraint, Integer, PrimaryKeyConstraint, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from kosmos_rag.storage.tables.columns import column, metadata, tenant_id, time

erasures = Table(
    "erasures",
    metadata,
    tenant_id(),
    column("number", Integer),
    time("at"),
    column("kind", Text),
    column("selector_sha256", Text),  # a record must not repeat the name that was erased
    column("erased", JSONB),  # rows by table
    column("retained", JSONB),  # rows and end of retention by table
    column("sha256", Text),  # of all columns above and of the previous record
    PrimaryKeyConstraint("tenant_id", "number"),
    CheckConstraint("number > 0"),
    CheckConstraint("kind IN ('tenant', 'subject', 'source', 'metadata')"),
)
