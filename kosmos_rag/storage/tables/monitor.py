"""The guard of recall: samples of live questions, what was measured with them, and what became of the indexes."""

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import CheckConstraint, Double, Index, PrimaryKeyConstraint, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REAL

from kosmos_rag.storage.tables.columns import collection, column, metadata, of_tenant, tenant_id, time

guard_samples = Table(
    "guard_samples",
    metadata,
    tenant_id(),
    column("id", Uuid),  # one of a bounded number of places: so many samples there are at most
    time("at"),
    column("space_id", Uuid),  # no reference: a space may be dropped while its samples wait to be written
    collection(null=True),  # null: all of them were asked
    column("principals", ARRAY(Text)),  # of the reader: it is asked again as them
    column("vector", HALFVEC),
    column("question", Text, null=True),  # null unless a setting asks for it
    PrimaryKeyConstraint("tenant_id", "id"),
    of_tenant(),
)

guard_runs = Table(
    "guard_runs",
    metadata,
    tenant_id(),
    column("id", Uuid),
    time("at"),
    column("kind", Text),
    column("state", Text),
    column("why", Text),
    column("index_id", Uuid, null=True),  # no reference: a run outlives the index that it measured
    column("figures", JSONB),
    column("scores", ARRAY(REAL)),  # of the samples, ascending: what later ones are compared with
    column("milliseconds", Double),
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("kind IN ('recall', 'questions', 'permission')"),
    CheckConstraint("state IN ('ok', 'alarm', 'unknown')"),
    of_tenant(),
)
Index("guard_runs_newest", guard_runs.c.tenant_id, guard_runs.c.kind, guard_runs.c.at)

index_log = Table(
    "index_log",
    metadata,
    tenant_id(),
    column("id", Uuid),
    time("at"),
    column("index_id", Uuid),  # no reference: the log outlives its indexes
    column("action", Text),
    column("why", Text),
    column("before", JSONB),
    column("after", JSONB),
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("action IN ('built', 'tuned', 'raised', 'dropped', 'left')"),
    of_tenant(),
)
Index("index_log_newest", index_log.c.tenant_id, index_log.c.at)
