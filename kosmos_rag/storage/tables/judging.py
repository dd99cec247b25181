"""Questions with a location of their answer, which a person has accepted or rejected."""

from sqlalchemy import CheckConstraint, Integer, PrimaryKeyConstraint, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY

from kosmos_rag.storage.tables.columns import collection, column, metadata, tenant_id, tenant_key, time

judged_questions = Table(
    "judged_questions",
    metadata,
    tenant_id(),
    column("id", Uuid),  # follows from collection, question and location
    time("at"),
    column("judgement", Text),  # open: the decision was withdrawn
    column("judge", Text, null=True),  # who has decided; null: not named, or erased
    collection(null=True),  # null: all of them were asked
    column("question", Text),
    column("question_id", Text(collation="C")),  # the id in results of evaluations
    column("source", Text, null=True),  # null: nothing answers the question
    column("section", Text, null=True),
    column("line_start", Integer, null=True),
    column("line_end", Integer, null=True),
    column("principal", Text),  # what a reader needs to see the document
    column("subjects", ARRAY(Text)),  # readers whose feedback it is from
    column("ups", Integer),
    column("downs", Integer),
    column("clicks", Integer),
    time("last_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("judgement IN ('accepted', 'rejected', 'open')"),
    tenant_key(),
)
