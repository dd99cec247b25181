"""What tenants use, by hour."""

from sqlalchemy import CheckConstraint, Double, Index, PrimaryKeyConstraint, Table, Text, Uuid

from kosmos_rag.storage.tables.columns import collection, column, metadata, tenant_id, tenant_key, time

# Processes append, and maintenance joins the rows of an hour that is over.
usage = Table(
    "usage",
    metadata,
    tenant_id(),
    column("id", Uuid),
    time("hour"),  # its beginning
    collection(null=True),  # null: all of them were asked
    column("subject", Text, null=True),  # null: the reader is not known, or erased
    column("quantity", Text),
    column("model", Text, null=True),  # null: no model took part
    column("amount", Double),
    column("cost", Double, null=True),  # by the price of that time; null: it had none
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("amount >= 0"),
    tenant_key(),
)
Index("usage_hour", usage.c.tenant_id, usage.c.hour)
