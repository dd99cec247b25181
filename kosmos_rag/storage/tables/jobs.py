"""The queue of the workers, sync runs and uploads."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Double,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, JSONB

from kosmos_rag.storage.tables.columns import collection, column, metadata, tenant_id, tenant_key, time

# No foreign keys: on a distributed server jobs and sync runs are local tables, whose references do not cascade.
jobs = Table(
    "jobs",
    metadata,
    tenant_id(),
    column("id", Uuid),  # kosmos.new_job_id(): in the order of time
    column("tenant", Text),  # name of the tenant
    collection(),
    column("kind", Text),
    column("key", Text(collation="C")),  # subject of the work: one unfinished job for each key
    column("payload", JSONB),
    column("state", Text),
    column("priority", Integer),
    time("run_at"),
    column("every_s", Double, null=True),  # interval of a periodic job
    column("attempt", Integer),
    column("lost", Integer),  # number of expired leases: identifies jobs that kill their worker
    column("requeue", Boolean),  # enqueued again while it was running
    column("token", Uuid, null=True),  # fencing token: a worker with another one cannot finish the job
    time("lease_until", null=True),
    column("worker", Text, null=True),
    column("sync_run_ids", ARRAY(Uuid)),  # sync runs whose counts wait for the outcome
    column("outcome", Text, null=True),
    column("code", Text, null=True),
    column("error", Text, null=True),
    time("created_at"),
    time("started_at", null=True),
    time("finished_at", null=True),
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("state IN ('scheduled', 'queued', 'running', 'done', 'dead', 'cancelled')"),
    CheckConstraint("every_s > 0"),
    CheckConstraint("(state = 'running') = (token IS NOT NULL)"),
    CheckConstraint("(state = 'running') = (lease_until IS NOT NULL)"),
    CheckConstraint("(state IN ('done', 'dead', 'cancelled')) = (finished_at IS NOT NULL)"),
)
Index(
    "jobs_unfinished",
    jobs.c.tenant_id,
    jobs.c.key,
    unique=True,
    postgresql_where=text("state IN ('scheduled', 'queued', 'running')"),
)
Index(
    "jobs_queued",
    jobs.c.tenant_id,
    jobs.c.kind,
    jobs.c.priority.desc(),
    jobs.c.id,
    postgresql_where=text("state = 'queued'"),
)
Index("jobs_dead", jobs.c.tenant_id, jobs.c.key, postgresql_where=text("state IN ('dead', 'cancelled')"))
Index("jobs_scheduled", jobs.c.run_at, postgresql_where=text("state = 'scheduled'"))
Index("jobs_running", jobs.c.lease_until, postgresql_where=text("state = 'running'"))
Index("jobs_finished", jobs.c.finished_at, postgresql_where=text("state IN ('done', 'dead', 'cancelled')"))

# Counts of each sync of a source: seen = new + changed + unchanged + removed + failed + cancelled.
sync_runs = Table(
    "sync_runs",
    metadata,
    tenant_id(),
    column("id", Uuid),
    collection(),
    column("source", JSONB),
    column("state", Text),
    *(column(name, Integer) for name in ("seen", "new", "changed", "unchanged", "removed", "failed")),
    column("chunks", BigInteger),
    column("failures", JSONB),  # the first 100
    column("error", Text, null=True),
    time("started_at"),
    time("finished_at", null=True),
    column("cancelled", Integer),
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("state IN ('listing', 'working', 'finished', 'failed', 'cancelled')"),
)
Index("sync_runs_finished", sync_runs.c.finished_at)

# Bytes that wait for their job.
uploads = Table(
    "uploads",
    metadata,
    tenant_id(),
    column("id", Uuid),
    column("data", BYTEA),
    time("created_at"),
    column("number", Integer),  # position of the chunk in the upload
    PrimaryKeyConstraint("tenant_id", "id", "number"),
    tenant_key(),
)
