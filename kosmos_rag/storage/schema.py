"""The tables as SQLAlchemy metadata: what the migrations must add up to, and what the linter reads.

Queries do not go through here; they are in sql/*.sql. A test compares this module with a migrated database.
"""

from typing import Any

from pgvector.sqlalchemy import HALFVEC, SPARSEVEC
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, JSONB, REAL, TSVECTOR
from sqlalchemy.types import TypeEngine

from kosmos_rag.storage.revision import SCHEMA

metadata = MetaData(schema=SCHEMA)


def _column(name: str, kind: TypeEngine[Any] | type[TypeEngine[Any]], *, null: bool = False) -> Column[Any]:
    return Column(name, kind, nullable=null)


def _tenant() -> Column[Any]:
    return _column("tenant_id", Uuid)


def _collection(*, null: bool = False) -> Column[Any]:
    return _column("collection", Text(collation="C"), null=null)


def _time(name: str, *, null: bool = False) -> Column[Any]:
    return _column(name, DateTime(timezone=True), null=null)


def _references(column: str, table: str, *, on_delete: str | None = "CASCADE") -> ForeignKeyConstraint:
    """Return a foreign key that carries the tenant, so that no row can point into another tenant."""
    return ForeignKeyConstraint(
        ["tenant_id", column], [f"{SCHEMA}.{table}.tenant_id", f"{SCHEMA}.{table}.id"], ondelete=on_delete
    )


def _of_tenant() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["tenant_id"], [f"{SCHEMA}.tenants.tenant_id"], ondelete="CASCADE")


tenants = Table(
    "tenants",
    metadata,
    _tenant(),
    _column("name", Text),
    _column("live_space_id", Uuid, null=True),  # switching models is changing this one value
    _time("created_at"),
    PrimaryKeyConstraint("tenant_id"),
    ForeignKeyConstraint(
        ["tenant_id", "live_space_id"],
        [f"{SCHEMA}.embedding_spaces.tenant_id", f"{SCHEMA}.embedding_spaces.id"],
        name="tenants_live_space_fkey",
        use_alter=True,
    ),
)

embedding_spaces = Table(
    "embedding_spaces",
    metadata,
    _tenant(),
    _column("id", Uuid),
    _column("model", Text),
    _column("dimensions", Integer),
    _column("normalized", Boolean),
    _column("probe", HALFVEC),  # the vector of a fixed sentence: tells two models of one size apart
    _time("created_at"),
    _column("state", Text),  # ready: has been live
    _time("live_until", null=True),  # when another became live: the latest is what a rollback goes back to
    _column("truncated_tokens", BigInteger),  # of chunks too long for the model, while it was filled
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("dimensions BETWEEN 1 AND 4000"),
    CheckConstraint("state IN ('building', 'ready', 'dropping')"),
    _of_tenant(),
)

documents = Table(
    "documents",
    metadata,
    _tenant(),
    _column("id", Uuid),  # from tenant and source, so one source is one document without a second unique key
    _column("source", Text),
    _column("title", Text),
    _column("media_type", Text),
    _column("language", Text),  # not regconfig: pg_upgrade refuses columns of that type
    _column("metadata", JSONB),
    _column("acl", ARRAY(Text)),
    _column("version", Integer),
    _time("created_at"),
    _time("updated_at"),
    _column("collection", Text),
    _column("mark", Text, null=True),  # what the source said of it: an equal one means unchanged content
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("version >= 1"),
    _of_tenant(),
)

document_versions = Table(
    "document_versions",
    metadata,
    _tenant(),
    _column("id", Uuid),
    _column("document_id", Uuid),
    _column("number", Integer),
    _column("content_hash", Text),
    _column("fingerprint", Text),  # of content and of everything that shapes its chunks: unchanged means equal here
    _column("bytes", BigInteger),
    _column("text", Text),  # citations point into it; a new model or chunker needs no second parse
    _column("pages", ARRAY(Integer)),
    _column("chunks", Integer),
    _column("acl", ARRAY(Text)),
    _time("created_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "document_id", "number"),
    CheckConstraint("number >= 1"),
    _references("document_id", "documents"),
)

chunks = Table(
    "chunks",
    metadata,
    _tenant(),
    _column("id", Uuid),
    _column("document_id", Uuid),
    _column("version_id", Uuid),
    _column("ordinal", Integer),
    _column("start_offset", Integer),
    _column("end_offset", Integer),
    _column("line_start", Integer),
    _column("line_end", Integer),
    _column("page_start", Integer, null=True),
    _column("page_end", Integer, null=True),
    _column("section", ARRAY(Text)),
    _column("text", Text),
    _column("tokens", Integer),
    _column("splitter", Text),
    _column("fallback_reason", Text, null=True),
    _column("acl", ARRAY(Text)),
    _column("tsv", TSVECTOR),
    _column("length", Integer),  # lexemes with repetitions: the length in BM25
    _column("collection", Text),
    _column("serial", Integer),  # rises with each publication into the collection, and is never used again
    _column("around_start", Integer, null=True),  # the span that is shown for it, where that is more than its own
    _column("around_end", Integer, null=True),
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "version_id", "ordinal"),
    UniqueConstraint("tenant_id", "collection", "serial"),
    CheckConstraint("end_offset > start_offset"),
    CheckConstraint(
        "(around_start IS NULL) = (around_end IS NULL) AND around_start <= start_offset AND around_end >= end_offset"
    ),
    _references("version_id", "document_versions"),
)

embeddings = Table(
    "embeddings",
    metadata,
    _tenant(),
    _column("chunk_id", Uuid),
    _column("space_id", Uuid),
    _column("acl", ARRAY(Text)),
    _column("embedding", HALFVEC),
    _column("collection", Text),
    _column("text_hash", Uuid, null=True),  # MD5 of what was embedded: the same text needs no second embedding
    # chunk before space: the cascade from chunks looks up by (tenant_id, chunk_id).
    PrimaryKeyConstraint("tenant_id", "chunk_id", "space_id"),
    _references("chunk_id", "chunks"),
    _references("space_id", "embedding_spaces", on_delete="RESTRICT"),
    Index("embeddings_text_hash", "tenant_id", "space_id", "text_hash"),
)

corpus_statistics = Table(
    "corpus_statistics",
    metadata,
    _tenant(),
    _collection(),
    _column("chunks", BigInteger),
    _column("length", BigInteger),
    _column("next_lexeme_id", Integer),
    _column("next_serial", Integer),
    _column("languages", ARRAY(Text)),  # of its documents: a question is analysed in each of them
    _column("epoch", BigInteger),  # raised by each transaction that changes its documents
    PrimaryKeyConstraint("tenant_id", "collection"),
    CheckConstraint("chunks >= 0"),
    CheckConstraint("length >= 0"),
    _of_tenant(),
)

# Rows of it, and of the tail, refer to no tenant: they are written under the lock on their corpus, which does, and a
# check of each row would cost a fifth of a publication.
lexemes = Table(
    "lexemes",
    metadata,
    _tenant(),
    _collection(),
    _column("lexeme", Text(collation="C")),
    _column("id", Integer),  # unique in the collection by the lock on its corpus; a key would be one more index to fill
    _column("chunks", Integer),  # document frequency, counted in chunks
    PrimaryKeyConstraint("tenant_id", "collection", "lexeme"),
    CheckConstraint("chunks > 0"),
)

# Chunks that no segment holds yet. A narrow table of its own: it is scanned.
lexical_tail = Table(
    "lexical_tail",
    metadata,
    _tenant(),
    _collection(),
    _column("serial", Integer),
    _column("chunk_id", Uuid),
    _column("document_id", Uuid),
    _column("acl", ARRAY(Text)),
    _column("length", Integer),
    _column("pivot", REAL),  # the average length that `terms` was saturated with
    _column("terms", SPARSEVEC),  # lexeme id → saturated term frequency
    PrimaryKeyConstraint("tenant_id", "collection", "serial"),
)

# The catalogue of indexes: lexical segments and vector indexes, with what their maintenance knows about them.
indexes = Table(
    "indexes",
    metadata,
    _tenant(),
    _column("id", Uuid),
    _column("kind", Text),
    _column("state", Text),
    _collection(null=True),  # of a segment
    _column("space_id", Uuid, null=True),  # of a vector index
    _column("first_serial", Integer, null=True),
    _column("last_serial", Integer, null=True),  # half open
    _column("rows", BigInteger),  # when it was built
    _column("settings", JSONB),
    _column("health", JSONB),
    _time("created_at"),
    _time("checked_at", null=True),
    PrimaryKeyConstraint("tenant_id", "id"),
    _references("space_id", "embedding_spaces", on_delete="RESTRICT"),
    CheckConstraint("kind IN ('segment', 'ivfflat', 'hnsw')"),
    CheckConstraint("state IN ('building', 'ready', 'retired')"),
    CheckConstraint(
        "(kind = 'segment') = (collection IS NOT NULL AND first_serial IS NOT NULL AND last_serial IS NOT NULL)"
    ),
    CheckConstraint("(kind = 'segment') = (space_id IS NULL)"),
    _of_tenant(),
)

segments = Table(
    "segments",
    metadata,
    _tenant(),
    _column("index_id", Uuid),
    _column("serials", BYTEA),  # of its chunks: int32, ascending
    _column("lengths", BYTEA),  # of its chunks: int32, in the same order
    PrimaryKeyConstraint("tenant_id", "index_id"),
    _references("index_id", "indexes"),
)

postings = Table(
    "postings",
    metadata,
    _tenant(),
    _column("index_id", Uuid),
    _column("lexeme_id", Integer),
    _column("offsets", BYTEA),  # of the chunks, within the segment: int32, ascending
    _column("frequencies", BYTEA),  # uint8, in the same order: a tsvector counts no further
    PrimaryKeyConstraint("tenant_id", "index_id", "lexeme_id"),
    ForeignKeyConstraint(
        ["tenant_id", "index_id"], [f"{SCHEMA}.segments.tenant_id", f"{SCHEMA}.segments.index_id"], ondelete="CASCADE"
    ),
)

# The queue. No references: on a distributed server jobs and runs are local tables, and none from those cascades.
jobs = Table(
    "jobs",
    metadata,
    _tenant(),
    Column("id", BigInteger, Identity(always=True), nullable=False),
    _column("tenant", Text),  # the name: an id does not tell it
    _collection(),
    _column("kind", Text),
    _column("key", Text(collation="C")),  # what the work is on: one unfinished job each
    _column("payload", JSONB),
    _column("state", Text),
    _column("priority", Integer),
    _time("run_at"),
    _column("every_s", Double, null=True),  # of periodic work
    _column("attempt", Integer),
    _column("lost", Integer),  # leases that ran out: what takes its worker down is told by them
    _column("again", Boolean),  # asked for once more while it was running
    _column("token", Uuid, null=True),  # the fence: who holds another one may not finish the job
    _time("lease_until", null=True),
    _column("worker", Text, null=True),
    _column("runs", ARRAY(Uuid)),  # whose ledgers wait for the outcome
    _column("outcome", Text, null=True),
    _column("code", Text, null=True),
    _column("error", Text, null=True),
    _time("created_at"),
    _time("started_at", null=True),
    _time("finished_at", null=True),
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

# The ledger of each pass over a source: seen = new + changed + unchanged + removed + failed.
runs = Table(
    "runs",
    metadata,
    _tenant(),
    _column("id", Uuid),
    _collection(),
    _column("source", JSONB),
    _column("state", Text),
    *(_column(name, Integer) for name in ("seen", "new", "changed", "unchanged", "removed", "failed")),
    _column("chunks", BigInteger),
    _column("failures", JSONB),  # the first of them
    _column("error", Text, null=True),
    _time("started_at"),
    _time("finished_at", null=True),
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("state IN ('listing', 'working', 'finished', 'failed')"),
)
Index("runs_finished", runs.c.finished_at)

# Bytes that wait for their job.
uploads = Table(
    "uploads",
    metadata,
    _tenant(),
    _column("id", Uuid),
    _column("data", BYTEA),
    _time("created_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    _of_tenant(),
)

# Settings that a collection goes by, whole: no file of a process can change what they say.
presets = Table(
    "presets",
    metadata,
    _tenant(),
    _collection(),
    _column("name", Text),
    _column("content", Text),  # JSON; not JSONB, which does not keep the order of signals
    _time("created_at"),
    PrimaryKeyConstraint("tenant_id", "collection"),
    _of_tenant(),
)
