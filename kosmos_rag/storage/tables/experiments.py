"""Experiments, and the results of their questions."""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Double,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from kosmos_rag.storage.tables.columns import collection, column, metadata, references, tenant_id, tenant_key, time

experiments = Table(
    "experiments",
    metadata,
    tenant_id(),
    column("id", Uuid),
    column("name", Text(collation="C")),
    collection(null=True),  # null: of questions over all of them
    column("mode", Text),
    column("share", Double),
    column("content", Text),  # JSON; not JSONB, which does not keep the order of signals
    time("started_at"),
    time("stopped_at", null=True),
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "name"),
    CheckConstraint("mode IN ('shadow', 'serve')"),
    CheckConstraint("share > 0 AND share <= 1"),
    tenant_key(),
)
# One at a time for the same questions: with two, the cause of a difference would be unknown.
Index(
    "experiments_running",
    experiments.c.tenant_id,
    experiments.c.collection,
    unique=True,
    postgresql_nulls_not_distinct=True,
    postgresql_where=text("stopped_at IS NULL"),
)

# No text, and no id of a reader: what was asked by whom is in the log, where one is kept.
experiment_results = Table(
    "experiment_results",
    metadata,
    tenant_id(),
    column("experiment_id", Uuid),
    column("id", Uuid),
    time("at"),
    column("retrieval_id", Uuid, null=True),  # its record in the log; no reference: the log is referred to by nothing
    column("arm", Text),  # which configuration was served
    column("requested", Integer),
    column("control_ms", Double, null=True),  # null: it did not run, or its result came from the cache
    # Of both that ran, without the embedding: the second finds the vector of the first.
    column("treatment_ms", Double, null=True),
    column("control_hits", Integer, null=True),  # null: it did not run
    column("treatment_hits", Integer, null=True),
    column("overlap", Double, null=True),  # null: only one of them ran
    column("rbo", Double, null=True),
    column("degraded", Boolean),  # a stage of one of them could not run in time, or at all
    column("error", Text, null=True),  # the type of the error that the second one ended with
    PrimaryKeyConstraint("tenant_id", "experiment_id", "id"),
    CheckConstraint("arm IN ('control', 'treatment')"),
    references("experiment_id", "experiments"),
    Index("experiment_results_at", "tenant_id", "experiment_id", "at"),
)
