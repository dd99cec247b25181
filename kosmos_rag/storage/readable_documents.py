"""Read the documents of a reader without a search: lists, texts, lines and spans."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, get_args

import psycopg
from psycopg.rows import dict_row

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import (
    DocumentInfo,
    DocumentLines,
    DocumentPosition,
    DocumentSection,
    DocumentSort,
    Excerpt,
    Rectangle,
)
from kosmos_rag.storage.binary import unpack_numbers
from kosmos_rag.storage.documents import parse_notes
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement

_NO_CONDITION: Mapping[str, Any] = {
    "filtered": False,
    "condition": None,
    "condition_values": None,
    "sources": [],
    "folders": [],
}

_SORTS: tuple[DocumentSort, ...] = get_args(DocumentSort)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE = 10_000
"""Width and height of a page in the coordinates of a LineBox."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderTotal:
    """Readable chunks of documents with the same department key and folder."""

    collection: str
    department: Any
    """Value of the department's key in the metadata; None without one."""
    folder: str
    """Folder of the sources, with a slash at its end; empty without one."""
    principals: tuple[str, ...]
    """Principals of the reader that grant access."""
    chunks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentOutline:
    """The acl of a document, its versions, and its chunks."""

    acl: tuple[str, ...]
    """Principals that may read it."""
    versions: tuple[int, ...]
    """Numbers of the stored versions."""
    chunks: tuple[Mapping[str, Any], ...]
    """The chunks of the current version, each with the span of its text in characters (`start`, `end`), `line_start`,
    `line_end`, `page`, `section` and `chunker`."""


class ReadableDocuments:
    """The documents of a tenant that some principals may read."""

    def __init__(
        self,
        pool: ConnectionPool,
        tenant_id: uuid.UUID,
        principals: Sequence[str],
        collection: str | None = None,
    ) -> None:
        """Create the view of a reader.

        Args:
            pool: The app role's pool.
            collection: Restricts to one collection; None is all.
        """
        self._pool = pool
        self._tenant_id = tenant_id
        self._principals = principals
        self._collection = collection

    def list_documents(
        self,
        *,
        ids: Collection[uuid.UUID] | None = None,
        condition: Mapping[str, Any] | None = None,
        sort: DocumentSort = "source",
        after: DocumentPosition | None = None,
        limit: int | None = None,
    ) -> list[DocumentInfo]:
        """List documents that the principals may read.

        Args:
            condition: a compiled filter, whose values the statement binds.
            sort: the order; equal numbers are sorted by source and collection.
            after: position of the last document of the previous page.
        """
        if sort not in _SORTS:
            raise RequestError(f"sort is {str(sort)[:60]!r}; choose from {', '.join(_SORTS)}")
        *number, after_source, after_collection = after or (None, None)
        if after is not None and len(number) != (sort != "source"):
            raise RequestError(f"the position is not of a list sorted by {sort}; start with the first page")
        values = {
            **(condition or _NO_CONDITION),
            "tenant_id": self._tenant_id,
            "collection": self._collection,
            "ids": None if ids is None else list(ids),
            "after_source": after_source,
            "after_collection": after_collection,
            "limit": limit,
        }
        query = statement("list_documents")
        if sort != "source":
            query = statement("list_sorted_documents")
            values |= {"sort": sort, "after_value": number[0] if number else None}
        with (
            self._transaction() as connection,
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            return [_document_info(row) for row in cursor.execute(query, values)]

    def count_documents(self, condition: Mapping[str, Any] | None) -> int:
        """Count the documents that the principals may read.

        Args:
            condition: a compiled filter; None for all documents.
        """
        values = {**(condition or _NO_CONDITION), "tenant_id": self._tenant_id, "collection": self._collection}
        with self._transaction() as connection:
            (count,) = connection.execute(statement("count_filtered_documents"), values).fetchone() or (0,)
        return int(count)

    def read_last_changes(self) -> dict[str, str]:
        """Return what identifies the readable state of each collection.

        No other history of the database repeats it.
        """
        with self._transaction() as connection:
            values = {"tenant_id": self._tenant_id, "collection": self._collection}
            rows = connection.execute(statement("last_changes"), values).fetchall()
        return dict(rows)

    def read_folder_totals(self, *, key: str) -> tuple[int, list[FolderTotal]]:
        """Count the readable documents, and the readable chunks by folder.

        Chunks are also counted by the value of the department's key.

        Args:
            key: Key of the department in the metadata.
        """
        values = {"tenant_id": self._tenant_id, "key": key}
        with self._transaction() as connection:
            count = connection.execute(statement("count_documents"), {"tenant_id": self._tenant_id})
            rows = connection.execute(statement("chunks_by_folder"), values).fetchall()
            (documents,) = count.fetchone() or (0,)
        return documents, [
            FolderTotal(
                collection=collection, department=department, folder=folder, principals=tuple(acl or ()), chunks=chunks
            )
            for collection, department, folder, acl, chunks in rows
        ]

    def read_texts(self) -> list[tuple[str, str]]:
        """Return source and text of the readable documents, sorted by source."""
        with self._transaction() as connection:
            values = {"tenant_id": self._tenant_id, "collection": self._collection}
            return connection.execute(statement("document_texts"), values).fetchall()

    def read_texts_by_id(self, document_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, str]:
        """Return the current texts of readable documents by id.

        Missing documents are left out.
        """
        with self._transaction() as connection:
            values = {"tenant_id": self._tenant_id, "document_ids": list(document_ids)}
            return dict(connection.execute(statement("texts_of_documents"), values).fetchall())

    def read_lines(self, document_id: uuid.UUID, *, first: int, count: int) -> DocumentLines | None:
        """Return lines of a document.

        The result is None if the principals may read no such document. If the document has no such line, the text is
        empty and `line_end` is smaller than `line_start`.

        Args:
            first: number of the first line, from 1.
            count: maximum number of lines.
        """
        listed = {
            **_NO_CONDITION,
            "tenant_id": self._tenant_id,
            "collection": self._collection,
            "ids": [document_id],
            "after_source": None,
            "after_collection": None,
            "limit": 1,
        }
        values = {
            "tenant_id": self._tenant_id,
            "document_id": document_id,
            "first": first,
            "last": first + count - 1,
            "before": first - 1,
        }
        # One snapshot: the metadata and the lines are of the same version.
        with (
            self._transaction() as connection,
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            listing = cursor.execute(statement("list_documents"), listed).fetchone()
            row = connection.execute(statement("lines_of_document"), values).fetchone()
        if listing is None or row is None:
            return None
        version_id, text, start, total, page_start, page_end, total_pages, chunk_ids = row
        return DocumentLines(
            document=_document_info(listing),
            version_id=version_id,
            text=text,
            start=start,
            line_start=first,
            line_end=min(first + count - 1, total),
            total_lines=total,
            page_start=page_start,
            page_end=page_end,
            total_pages=total_pages,
            chunk_ids=tuple(chunk_ids),
        )

    def read_rectangles(self, document_id: uuid.UUID, span: tuple[int, int], version: int | None) -> list[Rectangle]:
        """Return the places of a span's lines on their pages.

        The result is empty if the principals may not read it, or it has another version, or no pages.

        Args:
            span: start and end, in characters.
            version: the version that the span is of; None for the current one.
        """
        values = {
            "tenant_id": self._tenant_id,
            "document_id": document_id,
            "collection": self._collection,
            "version": version,
        }
        with self._transaction() as connection:
            row = connection.execute(statement("boxes_of_document"), values).fetchone()
        boxes = [] if row is None else unpack_numbers(row[0]).reshape(-1, 7).tolist()
        return [
            Rectangle(page=page, left=left / _PAGE, top=top / _PAGE, right=right / _PAGE, bottom=bottom / _PAGE)
            for start, end, page, left, top, right, bottom in boxes
            if start < span[1] and span[0] < end
        ]

    def read_original(self, document_id: uuid.UUID) -> tuple[str, bytes] | None:
        """Return source and file of a document.

        The result is None if the principals may not read it, or its file is not stored.
        """
        values = {"tenant_id": self._tenant_id, "document_id": document_id, "collection": self._collection}
        with self._transaction() as connection:
            return connection.execute(statement("original_of_document"), values).fetchone()

    def read_sections(self, document_id: uuid.UUID) -> list[DocumentSection]:
        """Return the sections of a document, in its order.

        The result is empty if the principals may not read it.
        """
        values = {"tenant_id": self._tenant_id, "document_id": document_id, "collection": self._collection}
        with self._transaction() as connection:
            rows = connection.execute(statement("sections_of_document"), values).fetchall()
        return [
            DocumentSection(section=tuple(section), line_start=first, line_end=last) for section, first, last in rows
        ]

    def read_outline(self, document_id: uuid.UUID) -> DocumentOutline | None:
        """Return the outline of a document.

        The result is None if the principals may not read it.
        """
        values = {"tenant_id": self._tenant_id, "document_id": document_id, "collection": self._collection}
        with self._transaction() as connection:
            row = connection.execute(statement("outline_of_document"), values).fetchone()
        if row is None:
            return None
        acl, versions, chunks = map(tuple, row)
        return DocumentOutline(acl=acl, versions=versions, chunks=chunks)

    def read_spans(self, spans: Sequence[tuple[uuid.UUID, int, int]]) -> list[Excerpt | None]:
        """Return the text of spans (version, start, end).

        The result is None for a version that no longer exists.

        Args:
            spans: (version id, start, end) of each span, in characters.
        """
        with self._transaction() as connection:
            cursors = [
                connection.execute(
                    statement("version_text"),
                    {"tenant_id": self._tenant_id, "version_id": version_id, "start": start, "length": end - start},
                )
                for version_id, start, end in spans
            ]
            rows = [cursor.fetchone() for cursor in cursors]
        return [
            Excerpt(text=row[0], page_start=row[1], page_end=row[2], page_breaks=tuple(row[3])) if row else None
            for row in rows
        ]

    def _transaction(self) -> AbstractContextManager[psycopg.Connection]:
        return self._pool.transaction(self._tenant_id, self._principals)


def _document_info(row: Mapping[str, Any]) -> DocumentInfo:
    return DocumentInfo(**{**row, "notes": parse_notes(row["notes"])})
