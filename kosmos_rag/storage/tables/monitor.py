"""The recall monitor: samples of searches, measurements and index events."""

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import CheckConstraint, Double, Index, PrimaryKeyConstraint, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REAL

from kosmos_rag.storage.tables.columns import collection, column, metadata, tenant_id, tenant_key, time

monitor_samples = Table(
    "monitor_samples",
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
    tenant_key(),
)

monitor_runs = Table(
    "monitor_runs",
    metadata,
    tenant_id(),
    column("id", Uuid),
    time("at"),
    column("kind", Text),
    column("state", Text),
    column("reason", Text),
    column("index_id", Uuid, null=True),  # no reference: a run outlives the index that it measured
    column("figures", JSONB),
    column("scores", ARRAY(REAL)),  # of the samples, ascending: what later ones are compared with
    column("milliseconds", Double),
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("kind IN ('recall', 'questions', 'isolation')"),
    CheckConstraint("state IN ('ok', 'alarm', 'unknown')"),
    tenant_key(),
)
Index("monitor_runs_newest", monitor_runs.c.tenant_id, monitor_runs.c.kind, monitor_runs.c.at)

index_events = Table(
    "index_events",
    metadata,
    tenant_id(),
    column("id", Uuid),
    time("at"),
    column("index_id", Uuid),  # no reference: the log outlives its indexes
    column("action", Text),
    column("reason", Text),
    column("before", JSONB),
    column("after", JSONB),
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("action IN ('rebuilt', 'tuned', 'search_widened', 'dropped', 'skipped')"),
    tenant_key(),
)
Index("index_events_newest", index_events.c.tenant_id, index_events.c.at)
