"""Evaluations of retrieval, and their results by question."""

from sqlalchemy import Boolean, CheckConstraint, Double, Integer, PrimaryKeyConstraint, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB

from kosmos_rag.storage.tables.columns import collection, column, metadata, references, tenant_id, tenant_key, time

evaluations = Table(
    "evaluations",
    metadata,
    tenant_id(),
    column("id", Uuid),
    time("at"),
    column("label", Text),  # of the configuration, for people
    column("set_name", Text),
    column("set_sha256", Text),  # of questions and judgements: two with an equal one can be compared
    collection(null=True),  # null: all of them were asked
    column("principals", ARRAY(Text)),
    column("depth", Integer),  # hits that each question asked for
    column("questions", Integer),
    column("answered", Boolean),  # whether answers were made, and not passages alone
    column("measures", JSON),  # means over the questions; not JSONB, which does not keep the order
    column("settings", JSONB),  # `rag`, whole
    column("settings_hash", Text),
    column("code_version", Text),
    column("index_state", JSONB),
    column("seconds", Double),
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("depth > 0"),
    CheckConstraint("questions > 0"),
    tenant_key(),
)

evaluation_results = Table(
    "evaluation_results",
    metadata,
    tenant_id(),
    column("evaluation_id", Uuid),
    column("question_id", Text(collation="C")),
    column("question", Text),
    column("judged", JSONB),  # what answers it, with grades; empty where nothing does
    column("ranking", ARRAY(Text)),  # what was found, in the names of `judged` where it is of those
    column("measures", JSON),
    column("timings_ms", JSON),  # by stage
    column("refused", Boolean, null=True),  # null: no answer was made
    column("confidence", Double, null=True),
    PrimaryKeyConstraint("tenant_id", "evaluation_id", "question_id"),
    references("evaluation_id", "evaluations"),
)
