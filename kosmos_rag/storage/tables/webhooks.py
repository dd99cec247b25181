"""Subscribers to the events of a tenant."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    ForeignKeyConstraint,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY

from kosmos_rag.storage.migrate import SCHEMA
from kosmos_rag.storage.tables.columns import column, metadata, tenant_id, tenant_key, time

# Their secrets are derived from a key of the settings: no row has one.
webhook_subscribers = Table(
    "webhook_subscribers",
    metadata,
    tenant_id(),
    column("id", Uuid),
    column("name", Text(collation="C")),
    column("url", Text),
    column("types", ARRAY(Text)),  # empty for all
    column("collections", ARRAY(Text)),  # empty for all
    column("state", Text),
    column("reason", Text, null=True),  # of a stop
    column("position", BigInteger),  # sequence of the last event that is delivered, or needs no delivery
    column("attempts", Integer),  # answered ones, of the event after the position
    column("failures", Integer),  # consecutive ones: they decide the next pause
    column("error", Text, null=True),
    time("failing_since", null=True),
    time("next_attempt_at", null=True),
    time("delivered_at", null=True),
    column("secret_version", Integer),
    time("rotated_at", null=True),
    time("created_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "name"),
    CheckConstraint("state IN ('active', 'paused', 'stopped')"),
    CheckConstraint("position >= 0"),
    tenant_key(),
)

# The event itself is in `events`, so that an erasure reaches its names.
webhook_dead_letters = Table(
    "webhook_dead_letters",
    metadata,
    tenant_id(),
    column("subscriber_id", Uuid),
    column("sequence", BigInteger),
    column("attempts", Integer),
    column("error", Text),
    time("failed_at"),
    column("redeliver", Boolean),  # waits to be sent again
    PrimaryKeyConstraint("tenant_id", "subscriber_id", "sequence"),
    ForeignKeyConstraint(
        ["tenant_id", "subscriber_id"],
        [f"{SCHEMA}.webhook_subscribers.{name}" for name in ("tenant_id", "id")],
        ondelete="CASCADE",
    ),
    tenant_key(),
)
