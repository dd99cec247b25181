"""Reads that are not searches: the list of documents, and pieces of their text."""

import uuid
from collections.abc import Collection, Mapping, Sequence

import psycopg
from psycopg.rows import class_row

from kosmos_rag.core.types import DocumentInfo, DocumentLines, Excerpt
from kosmos_rag.storage import lexical_statistics as corpus
from kosmos_rag.storage.pool import Role
from kosmos_rag.storage.sql import statement


def list_documents(
    role: Role,
    tenant_id: uuid.UUID,
    principals: Sequence[str],
    collection: str | None,
    *,
    ids: Collection[uuid.UUID] | None = None,
    after: tuple[str, str] | None = None,
    limit: int | None = None,
) -> list[DocumentInfo]:
    """Return the documents of a collection, or of all, that these principals may read, by source and collection.

    `after` is source and collection of the last one of the page before.
    """
    source, of_collection = after or (None, None)
    values = {
        "tenant_id": tenant_id,
        "collection": collection,
        "ids": None if ids is None else list(ids),
        "after_source": source,
        "after_collection": of_collection,
        "limit": limit,
    }
    with (
        role.transaction(tenant_id, principals) as connection,
        connection.cursor(row_factory=class_row(DocumentInfo)) as cursor,
    ):
        return cursor.execute(statement("list_documents"), values).fetchall()


def read_last_changes(
    role: Role, tenant_id: uuid.UUID, principals: Sequence[str], collection: str | None
) -> dict[str, int]:
    """Return the number of the last change of what these principals may read, by collection."""
    with role.transaction(tenant_id, principals) as connection:
        values = {"tenant_id": tenant_id, "collection": collection}
        return dict(connection.execute(statement("last_changes"), values).fetchall())


def read_totals(role: Role, tenant_id: uuid.UUID, principals: Sequence[str]) -> tuple[int, dict[tuple[str, ...], int]]:
    """Return how many documents these principals may read, and how many chunks by which of them may read those."""
    values = {"tenant_id": tenant_id}
    with role.transaction(tenant_id, principals) as connection:
        counted = connection.execute(statement("count_documents"), values)
        by_readers = connection.execute(statement("chunks_by_acl"), values)
        (documents,) = counted.fetchone() or (0,)
        return documents, {tuple(acl): chunks for acl, chunks in by_readers.fetchall()}


def read_texts(
    role: Role, tenant_id: uuid.UUID, principals: Sequence[str], collection: str | None
) -> list[tuple[str, str]]:
    """Return source and text of the documents of a collection, or of all, that these principals may read, by source."""
    with role.transaction(tenant_id, principals) as connection:
        values = {"tenant_id": tenant_id, "collection": collection}
        return connection.execute(statement("document_texts"), values).fetchall()


def read_documents(
    role: Role, tenant_id: uuid.UUID, principals: Sequence[str], document_ids: Collection[uuid.UUID]
) -> dict[uuid.UUID, str]:
    """Return the present texts of documents by id; none of those that are gone, or that these may not read."""
    with role.transaction(tenant_id, principals) as connection:
        values = {"tenant_id": tenant_id, "document_ids": list(document_ids)}
        return dict(connection.execute(statement("texts_of_documents"), values).fetchall())


def read_lines(
    role: Role,
    tenant_id: uuid.UUID,
    principals: Sequence[str],
    collection: str | None,
    document_id: uuid.UUID,
    *,
    first: int,
    count: int,
) -> DocumentLines | None:
    """Return lines of a document from the first on; None where these may read no such document.

    Where the document has no such line, the text is empty and `line_end` is before `line_start`.
    """
    listed = {
        "tenant_id": tenant_id,
        "collection": collection,
        "ids": [document_id],
        "after_source": None,
        "after_collection": None,
        "limit": 1,
    }
    values = {
        "tenant_id": tenant_id,
        "document_id": document_id,
        "first": first,
        "last": first + count - 1,
        "before": first - 1,
    }
    # One snapshot: what is told of the document is of the version that the lines are of.
    with (
        role.transaction(tenant_id, principals) as connection,
        connection.cursor(row_factory=class_row(DocumentInfo)) as cursor,
    ):
        info = cursor.execute(statement("list_documents"), listed).fetchone()
        row = connection.execute(statement("lines_of_document"), values).fetchone()
    if info is None or row is None:
        return None
    version_id, text, start, total, page_start, page_end, chunk_ids = row
    return DocumentLines(
        document=info,
        version_id=version_id,
        text=text,
        start=start,
        line_start=first,
        line_end=min(first + count - 1, total),
        total_lines=total,
        page_start=page_start,
        page_end=page_end,
        chunk_ids=tuple(chunk_ids),
    )


def read_spans(
    role: Role, tenant_id: uuid.UUID, principals: Sequence[str], spans: Sequence[tuple[uuid.UUID, int, int]]
) -> list[Excerpt | None]:
    """Return what stands between (version, start, end); None for a version that is no longer there."""
    with role.transaction(tenant_id, principals) as connection:
        cursors = [
            connection.execute(
                statement("version_text"),
                {"tenant_id": tenant_id, "version_id": version_id, "start": start, "length": end - start},
            )
            for version_id, start, end in spans
        ]
        rows = [cursor.fetchone() for cursor in cursors]
    return [
        Excerpt(text=row[0], page_start=row[1], page_end=row[2], page_breaks=tuple(row[3])) if row else None
        for row in rows
    ]


def source_etags(
    connection: psycopg.Connection, tenant_id: uuid.UUID, document_ids: Collection[uuid.UUID]
) -> dict[str, str | None]:
    """Return the source etags of the stored ones among these documents, by source; None where the source gave none."""
    values = {"tenant_id": tenant_id, "document_ids": list(document_ids)}
    return dict(connection.execute(statement("source_etags"), values).fetchall())


def update_source_etags(
    connection: psycopg.Connection, tenant_id: uuid.UUID, changed: Mapping[uuid.UUID, str], *, collection: str
) -> None:
    """Set the source etags of documents with unchanged content; documents that are not stored are left out."""
    scope = {"tenant_id": tenant_id, "collection": collection}
    # As every writer of several documents does: two of them would lock rows in orders of their own.
    corpus.lock(connection, scope)
    values = {"document_ids": list(changed), "source_etags": list(changed.values())}
    connection.execute(statement("update_source_etags"), {**scope, **values})
