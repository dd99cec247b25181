"""Stored files, vector stores, and which files are in which of them."""

from sqlalchemy import BigInteger, Index, PrimaryKeyConstraint, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from kosmos_rag.storage.tables.columns import collection, column, metadata, references, tenant_id, tenant_key, time

# The bytes are in `uploads`, under the same id.
files = Table(
    "files",
    metadata,
    tenant_id(),
    column("id", Uuid),
    column("filename", Text),
    column("bytes", BigInteger),
    column("purpose", Text),
    column("readers", ARRAY(Text)),  # acl of the documents that are made from it
    column("acl", ARRAY(Text)),  # who sees the file itself: its uploader, administrators, and named readers
    time("created_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    tenant_key(),
    Index("files_created_at", "tenant_id", "created_at", "id"),
)

# What a collection has as a vector store. A collection without a row is one too, under its own name.
vector_stores = Table(
    "vector_stores",
    metadata,
    tenant_id(),
    collection(),
    column("name", Text),
    column("description", Text, null=True),
    column("metadata", JSONB),
    time("created_at"),
    PrimaryKeyConstraint("tenant_id", "collection"),
    tenant_key(),
)

# No reference to the document, which a job makes later, nor to the job, which is in a local table.
vector_store_files = Table(
    "vector_store_files",
    metadata,
    tenant_id(),
    collection(),
    column("file_id", Uuid),
    column("document_id", Uuid),
    column("job_id", Uuid),
    time("created_at"),
    PrimaryKeyConstraint("tenant_id", "collection", "file_id"),
    references("file_id", "files"),
    Index("vector_store_files_document", "tenant_id", "document_id"),
    Index("vector_store_files_file", "tenant_id", "file_id"),
)

file_batches = Table(
    "file_batches",
    metadata,
    tenant_id(),
    column("id", Uuid),
    collection(),
    column("file_ids", ARRAY(Uuid)),
    time("created_at"),
    PrimaryKeyConstraint("tenant_id", "id"),
    tenant_key(),
)
