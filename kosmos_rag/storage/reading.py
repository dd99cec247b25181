"""Reads that are not searches: the list of documents, and pieces of their text."""

import uuid
from collections.abc import Sequence

from psycopg.rows import class_row

from kosmos_rag.records import DocumentInfo
from kosmos_rag.storage.database import Role
from kosmos_rag.storage.sql import statement


def list_documents(
    role: Role, tenant_id: uuid.UUID, principals: Sequence[str], collection: str | None
) -> list[DocumentInfo]:
    """Return the documents of a collection, or of all, that these principals may read, by source."""
    with (
        role.transaction(tenant_id, principals) as connection,
        connection.cursor(row_factory=class_row(DocumentInfo)) as cursor,
    ):
        return cursor.execute(
            statement("list_documents"), {"tenant_id": tenant_id, "collection": collection}
        ).fetchall()


def read_texts(
    role: Role, tenant_id: uuid.UUID, principals: Sequence[str], collection: str | None
) -> list[tuple[str, str]]:
    """Return source and text of the documents of a collection, or of all, that these principals may read, by source."""
    with role.transaction(tenant_id, principals) as connection:
        values = {"tenant_id": tenant_id, "collection": collection}
        return connection.execute(statement("document_texts"), values).fetchall()


def read_spans(
    role: Role, tenant_id: uuid.UUID, principals: Sequence[str], spans: Sequence[tuple[uuid.UUID, int, int]]
) -> list[str | None]:
    """Return the texts between (version, start, end); None for a version that is no longer there."""
    with role.transaction(tenant_id, principals) as connection:
        cursors = [
            connection.execute(
                statement("version_text"),
                {"tenant_id": tenant_id, "version_id": version_id, "start": start, "length": end - start},
            )
            for version_id, start, end in spans
        ]
        rows = [cursor.fetchone() for cursor in cursors]
    return [row[0] if row else None for row in rows]
