"""Permission feeds, and the acl of each document that they name."""

from sqlalchemy import BigInteger, ForeignKeyConstraint, PrimaryKeyConstraint, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY

from kosmos_rag.storage.migrate import SCHEMA
from kosmos_rag.storage.tables.columns import collection, column, metadata, tenant_id, tenant_key, time

permission_feeds = Table(
    "permission_feeds",
    metadata,
    tenant_id(),
    collection(),
    column("name", Text(collation="C")),
    column("generation", BigInteger),  # incremented by each pass: an earlier pass that is still running stops
    time("started_at"),
    time("finished_at", null=True),
    PrimaryKeyConstraint("tenant_id", "collection", "name"),
    tenant_key(),
)

document_permissions = Table(
    "document_permissions",
    metadata,
    tenant_id(),
    column("document_id", Uuid),  # no reference: the document may come later
    collection(),
    column("feed", Text(collation="C")),
    column("acl", ARRAY(Text)),  # empty where the feed no longer names the document
    PrimaryKeyConstraint("tenant_id", "document_id"),
    ForeignKeyConstraint(
        ["tenant_id", "collection", "feed"],
        [f"{SCHEMA}.permission_feeds.{name}" for name in ("tenant_id", "collection", "name")],
        ondelete="CASCADE",
    ),
)
