"""Lexical statistics, postings, and the catalogue of indexes."""

from pgvector.sqlalchemy import SPARSEVEC
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKeyConstraint,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, INT4MULTIRANGE, JSONB, REAL

from kosmos_rag.storage.migrate import SCHEMA
from kosmos_rag.storage.tables.columns import collection, column, metadata, references, tenant_id, tenant_key, time

collection_statistics = Table(
    "collection_statistics",
    metadata,
    tenant_id(),
    collection(),
    column("chunks", BigInteger),
    column("length", BigInteger),
    column("next_lexeme_id", Integer),
    column("next_sequence", Integer),
    column("epoch", BigInteger),  # number of the last change
    column("known_items", JSONB, null=True),  # how well each retriever finds questions made of the texts
    column("state", Uuid),  # identity of the last change: random, never used again
    PrimaryKeyConstraint("tenant_id", "collection"),
    CheckConstraint("chunks >= 0"),
    CheckConstraint("length >= 0"),
    tenant_key(),
)

# Which chunks each of the last changes has added, removed, moved or changed otherwise: processes follow it.
collection_changes = Table(
    "collection_changes",
    metadata,
    tenant_id(),
    collection(),
    column("epoch", BigInteger),
    column("state", Uuid),  # of the collection after the change
    column("previous", Uuid),  # of the collection before it
    column("sequences", INT4MULTIRANGE, null=True),  # of the chunks; null for too many of them
    PrimaryKeyConstraint("tenant_id", "collection", "epoch"),
    tenant_key(),
)

# Counts of the chunks with the same access control list: a search is scored with the counts that its reader may see.
acl_statistics = Table(
    "acl_statistics",
    metadata,
    tenant_id(),
    collection(),
    column("acl_hash", Uuid),  # hash of `acl`, which may be too long for a key
    column("acl", ARRAY(Text)),
    column("chunks", BigInteger),
    column("length", BigInteger),
    column("languages", ARRAY(Text)),  # of the documents: a query is analysed in each language
    column("state", Uuid),  # identity of the last change of these chunks or their documents: random, never used again
    PrimaryKeyConstraint("tenant_id", "collection", "acl_hash"),
    tenant_key(),
)

# No foreign key here and in `unsegmented_terms`: rows are written under the lock on `collection_statistics`, which has
# one, and a check of each row costs a fifth of a publication.
lexemes = Table(
    "lexemes",
    metadata,
    tenant_id(),
    collection(),
    column("lexeme", Text(collation="C")),
    column("acl_hash", Uuid),
    column("acl", ARRAY(Text)),
    column("id", Integer),  # one id for a lexeme in the collection, for all access control lists
    column("chunks", Integer),  # document frequency: chunks with this acl that contain it
    PrimaryKeyConstraint("tenant_id", "collection", "lexeme", "acl_hash"),
    CheckConstraint("chunks > 0"),
)

# Terms of chunks without a segment. A narrow table, because searches scan it.
unsegmented_terms = Table(
    "unsegmented_terms",
    metadata,
    tenant_id(),
    collection(),
    column("sequence", Integer),
    column("chunk_id", Uuid),
    column("document_id", Uuid),
    column("acl", ARRAY(Text)),
    column("length", Integer),
    column("pivot", REAL),  # the average length that `terms` was saturated with
    column("terms", SPARSEVEC),  # lexeme id → saturated term frequency
    PrimaryKeyConstraint("tenant_id", "collection", "sequence"),
)

# The catalogue of indexes: lexical segments and vector indexes, with their health.
indexes = Table(
    "indexes",
    metadata,
    tenant_id(),
    column("id", Uuid),
    column("kind", Text),
    column("state", Text),
    collection(null=True),  # of a segment
    column("space_id", Uuid, null=True),  # of a vector index
    column("first_sequence", Integer, null=True),
    column("last_sequence", Integer, null=True),  # half open
    column("rows", BigInteger),  # when it was built
    column("settings", JSONB),
    column("health", JSONB),
    time("created_at"),
    time("checked_at", null=True),
    PrimaryKeyConstraint("tenant_id", "id"),
    references("space_id", "embedding_spaces", on_delete="RESTRICT"),
    CheckConstraint("kind IN ('segment', 'ivfflat', 'hnsw')"),
    CheckConstraint("state IN ('building', 'ready', 'retired')"),
    CheckConstraint(
        "(kind = 'segment') = (collection IS NOT NULL AND first_sequence IS NOT NULL AND last_sequence IS NOT NULL)"
    ),
    CheckConstraint("(kind = 'segment') = (space_id IS NULL)"),
    tenant_key(),
)

segments = Table(
    "segments",
    metadata,
    tenant_id(),
    column("index_id", Uuid),
    column("sequences", BYTEA),  # of its chunks: int32, ascending
    column("lengths", BYTEA),  # of its chunks: int32, in the same order
    PrimaryKeyConstraint("tenant_id", "index_id"),
    references("index_id", "indexes"),
)

postings = Table(
    "postings",
    metadata,
    tenant_id(),
    column("index_id", Uuid),
    column("lexeme_id", Integer),
    column("offsets", BYTEA),  # of the chunks, within the segment: int32, ascending
    column("frequencies", BYTEA),  # uint8, in the same order: a tsvector counts no further
    PrimaryKeyConstraint("tenant_id", "index_id", "lexeme_id"),
    ForeignKeyConstraint(
        ["tenant_id", "index_id"], [f"{SCHEMA}.segments.tenant_id", f"{SCHEMA}.segments.index_id"], ondelete="CASCADE"
    ),
)
