"""Tenants, their documents, and the settings of their collections."""

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import (
    BigInteger,
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
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, JSONB, TSVECTOR

from kosmos_rag.storage.migrate import SCHEMA
from kosmos_rag.storage.tables.columns import collection, column, metadata, references, tenant_id, tenant_key, time

tenants = Table(
    "tenants",
    metadata,
    tenant_id(),
    column("name", Text),
    column("live_space_id", Uuid, null=True),  # switching models is changing this one value
    time("created_at"),
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
    tenant_id(),
    column("id", Uuid),
    column("model", Text),
    column("dimensions", Integer),
    column("normalized", Boolean),
    column("probe", HALFVEC),  # the vector of a fixed sentence: it differs between two models of one size
    time("created_at"),
    column("state", Text),  # ready: has been live
    time("live_until", null=True),  # when another became live: the latest is what a rollback goes back to
    column("truncated_tokens", BigInteger),  # of chunks too long for the model, while it was filled
    column("query_prefix", Text),  # what the model puts before questions
    column("passage_prefix", Text),  # and before passages
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("dimensions BETWEEN 1 AND 4000"),
    CheckConstraint("state IN ('building', 'ready', 'dropping')"),
    tenant_key(),
)

documents = Table(
    "documents",
    metadata,
    tenant_id(),
    column("id", Uuid),  # from tenant and source, so one source is one document without a second unique key
    column("source", Text),
    column("title", Text),
    column("media_type", Text),
    column("language", Text),  # not regconfig: pg_upgrade refuses columns of that type
    column("metadata", JSONB),
    column("acl", ARRAY(Text)),
    column("version", Integer),
    time("created_at"),
    time("updated_at"),
    column("collection", Text),
    column("source_etag", Text, null=True),  # what the source said of it: an equal one means unchanged content
    column("notes", JSONB),  # what of its file was guessed or could not be read
    column("file_id", Uuid, null=True),  # of a part of a large file: the id that the whole has as one document
    PrimaryKeyConstraint("tenant_id", "id"),
    CheckConstraint("version >= 1"),
    tenant_key(),
    Index("documents_collection", "tenant_id", "collection"),
)
Index(
    "documents_parts",
    documents.c.tenant_id,
    documents.c.collection,
    documents.c.file_id,
    postgresql_where=documents.c.file_id.is_not(None),
)

filter_terms = Table(
    "filter_terms",
    metadata,
    tenant_id(),
    column("term", BigInteger),  # hash of a value of metadata with its path, or of a principal
    column("document_id", Uuid),
    column("acl", ARRAY(Text)),
    PrimaryKeyConstraint("tenant_id", "term", "document_id"),
    references("document_id", "documents"),
    Index("filter_terms_document", "tenant_id", "document_id"),
)

document_versions = Table(
    "document_versions",
    metadata,
    tenant_id(),
    column("id", Uuid),
    column("document_id", Uuid),
    column("number", Integer),
    column("content_hash", Text),
    column("fingerprint", Text),  # of content and of everything that shapes its chunks: unchanged means equal here
    column("bytes", BigInteger),
    column("text", Text),  # citations point into it; a new model or chunker needs no second parse
    column("pages", ARRAY(Integer)),
    column("boxes", BYTEA),  # places of the lines on their pages: seven int32 of each LineBox
    column("original", BYTEA, null=True),  # the file, where the settings keep it
    column("chunks", Integer),
    column("acl", ARRAY(Text)),
    time("created_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "document_id", "number"),
    CheckConstraint("number >= 1"),
    references("document_id", "documents"),
)

chunks = Table(
    "chunks",
    metadata,
    tenant_id(),
    column("id", Uuid),
    column("document_id", Uuid),
    column("version_id", Uuid),
    column("chunk_index", Integer),
    column("start_offset", Integer),
    column("end_offset", Integer),
    column("line_start", Integer),
    column("line_end", Integer),
    column("page_start", Integer, null=True),
    column("page_end", Integer, null=True),
    column("section", ARRAY(Text)),
    column("text", Text),
    column("tokens", Integer),
    column("chunker", Text),
    column("fallback_reason", Text, null=True),
    column("acl", ARRAY(Text)),
    column("tsv", TSVECTOR),
    column("length", Integer),  # lexemes with repetitions: the length in BM25
    column("collection", Text),
    column("sequence", Integer),  # rises with each publication into the collection, and is never used again
    column("parent_start", Integer, null=True),  # the span that is shown for it, where that is more than its own
    column("parent_end", Integer, null=True),
    column("table_context", ARRAY(Text)),  # caption and names of columns of the table that it begins within
    column("place_spans", JSONB),  # places of its text in the file: the fields of each PlaceSpan
    PrimaryKeyConstraint("tenant_id", "id"),
    UniqueConstraint("tenant_id", "version_id", "chunk_index"),
    UniqueConstraint("tenant_id", "collection", "sequence"),
    CheckConstraint("end_offset > start_offset"),
    CheckConstraint(
        "(parent_start IS NULL) = (parent_end IS NULL) AND parent_start <= start_offset AND parent_end >= end_offset"
    ),
    references("version_id", "document_versions"),
)

embeddings = Table(
    "embeddings",
    metadata,
    tenant_id(),
    column("chunk_id", Uuid),
    column("space_id", Uuid),
    column("acl", ARRAY(Text)),
    column("embedding", HALFVEC),
    column("collection", Text),
    column("text_hash", Uuid, null=True),  # MD5 of what was embedded: the same text needs no second embedding
    # chunk before space: the cascade from chunks looks up by (tenant_id, chunk_id).
    PrimaryKeyConstraint("tenant_id", "chunk_id", "space_id"),
    references("chunk_id", "chunks"),
    references("space_id", "embedding_spaces", on_delete="RESTRICT"),
    Index("embeddings_text_hash", "tenant_id", "space_id", "text_hash"),
)

# Settings of a collection, complete: no file of a process can change them.
collection_presets = Table(
    "collection_presets",
    metadata,
    tenant_id(),
    collection(),
    column("name", Text),
    column("content", Text),  # JSON; not JSONB, which does not keep the order of signals
    time("created_at"),
    PrimaryKeyConstraint("tenant_id", "collection"),
    tenant_key(),
)
