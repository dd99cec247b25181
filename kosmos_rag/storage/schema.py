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
    ForeignKeyConstraint,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REAL, TSVECTOR
from sqlalchemy.types import TypeEngine

from kosmos_rag.storage.revision import SCHEMA

metadata = MetaData(schema=SCHEMA)


def _column(name: str, kind: TypeEngine[Any] | type[TypeEngine[Any]], *, null: bool = False) -> Column[Any]:
    return Column(name, kind, nullable=null)


def _tenant() -> Column[Any]:
    return _column("tenant_id", Uuid)


def _time(name: str) -> Column[Any]:
    return _column(name, DateTime(timezone=True))


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
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("dimensions BETWEEN 1 AND 4000"),
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
    _column("pivot", REAL),  # the average length that `terms` was saturated with
    _column("terms", SPARSEVEC),  # lexeme id → saturated term frequency
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "version_id", "ordinal"),
    CheckConstraint("end_offset > start_offset"),
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
    # chunk before space: the cascade from chunks looks up by (tenant_id, chunk_id).
    PrimaryKeyConstraint("tenant_id", "chunk_id", "space_id"),
    _references("chunk_id", "chunks"),
    _references("space_id", "embedding_spaces", on_delete="RESTRICT"),
)

corpus_statistics = Table(
    "corpus_statistics",
    metadata,
    _tenant(),
    _column("chunks", BigInteger),
    _column("length", BigInteger),
    _column("lowest_pivot", REAL),  # bounds how far any chunk's `terms` can be from today's average
    _column("next_lexeme_id", Integer),
    PrimaryKeyConstraint("tenant_id"),
    CheckConstraint("chunks >= 0"),
    CheckConstraint("length >= 0"),
    _of_tenant(),
)

lexemes = Table(
    "lexemes",
    metadata,
    _tenant(),
    _column("lexeme", Text(collation="C")),
    _column("id", Integer),  # unique within the tenant by the lock on its corpus; a key would be one more index to fill
    _column("chunks", Integer),  # document frequency, counted in chunks
    PrimaryKeyConstraint("tenant_id", "lexeme"),
    CheckConstraint("chunks > 0"),
    _of_tenant(),
)
