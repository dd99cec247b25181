"""Users and groups that an identity provider writes by SCIM."""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from kosmos_rag.storage.migrate import SCHEMA
from kosmos_rag.storage.tables.columns import column, metadata, tenant_id, tenant_key, time

scim_resources = Table(
    "scim_resources",
    metadata,
    tenant_id(),
    column("id", Uuid),
    column("kind", Text),
    column("name", Text),  # userName or displayName
    column("name_key", Text(collation="C")),  # without case: userName is compared so
    column("external_id", Text(collation="C"), null=True),
    column("active", Boolean),
    column("content", JSONB),  # without id, meta, password and members
    # Names in the form of name_key, and external ids, that the user has or had before its last change.
    column("former_subjects", ARRAY(Text)),
    column("version", Integer),
    time("created_at"),
    time("modified_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "kind", "name_key"),
    CheckConstraint("kind IN ('User', 'Group')"),
    tenant_key(),
)
Index("scim_resources_external", scim_resources.c.tenant_id, scim_resources.c.external_id)

scim_members = Table(
    "scim_members",
    metadata,
    tenant_id(),
    column("group_id", Uuid),
    column("user_id", Uuid),
    PrimaryKeyConstraint("tenant_id", "group_id", "user_id"),
    *(
        ForeignKeyConstraint(
            ["tenant_id", key], [f"{SCHEMA}.scim_resources.{name}" for name in ("tenant_id", "id")], ondelete="CASCADE"
        )
        for key in ("group_id", "user_id")
    ),
    tenant_key(),
)
Index("scim_members_user", scim_members.c.tenant_id, scim_members.c.user_id)
