"""Terms of filters: hashes of the metadata and principals of documents.

A filter finds documents by them.
"""

import uuid
from collections.abc import Collection

import psycopg

from kosmos_rag.storage.sql import statement


def replace_filter_terms(
    connection: psycopg.Connection, tenant_id: uuid.UUID, document_ids: Collection[uuid.UUID]
) -> None:
    """Write the terms of documents as they are stored now.

    Args:
        connection: Within the transaction that wrote their metadata or their acl.
        document_ids: New documents, or changed ones.
    """
    values = {"tenant_id": tenant_id, "document_ids": list(document_ids)}
    connection.execute(statement("delete_filter_terms"), values)
    connection.execute(statement("insert_filter_terms"), values)
