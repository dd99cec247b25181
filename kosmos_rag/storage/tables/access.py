"""API keys of the service, and idempotency keys of its calls."""

from sqlalchemy import CheckConstraint, PrimaryKeyConstraint, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY

from kosmos_rag.storage.tables.columns import column, metadata, tenant_id, tenant_key, time

api_keys = Table(
    "api_keys",
    metadata,
    tenant_id(),
    column("id", Uuid),
    column("name", Text),  # whose it is, for people and for the log
    column("scopes", ARRAY(Text)),
    column("principals", ARRAY(Text)),
    column("secret_sha256", Text),  # the secret has 256 random bits: nothing slower is needed
    time("created_at"),
    time("expires_at", null=True),
    time("revoked_at", null=True),
    column("default_collection", Text(collation="C"), null=True),  # of requests that name none
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'ingest', 'operate', 'admin']"),
    tenant_key(),
)

# Under the key that its client gave it: who sends it again gets the job that there is.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    tenant_id(),
    column("key", Text(collation="C")),
    column("request_sha256", Text),
    column("job_id", Uuid, null=True),  # no reference: on a distributed server jobs are a local table
    time("created_at"),
    PrimaryKeyConstraint("tenant_id", "key"),
    tenant_key(),
)
