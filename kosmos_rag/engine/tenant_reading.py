"""Read documents of a tenant: lists, texts, lines and files."""

import uuid
from collections.abc import Iterable

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import (
    AuditKind,
    AuditOutcome,
    DocumentInfo,
    DocumentLines,
    DocumentPosition,
    DocumentSection,
    DocumentSort,
    Filter,
    Rectangle,
)
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.engine.departments import count_departments
from kosmos_rag.engine.tenant_scope import TenantScope
from kosmos_rag.ingestion.document import document_id
from kosmos_rag.parsing import media_types
from kosmos_rag.retrieval.filters import compile_filter
from kosmos_rag.storage.audit.log import record_event
from kosmos_rag.storage.readable_documents import DocumentOutline

_MAX_LINES = 10_000
_LAST_LINE = 2**31 - 1 - _MAX_LINES


@name_wrong_arguments()
class DocumentReading(TenantScope):
    """Calls that read documents, those that the reader may read."""

    def documents(
        self,
        *,
        ids: Iterable[uuid.UUID] | None = None,
        filter: Filter | None = None,  # noqa: A002
        sort: DocumentSort = "source",
        after: DocumentPosition | None = None,
        limit: int | None = None,
    ) -> list[DocumentInfo]:
        """List the documents that this reader may read.

        Raises RequestError for a malformed filter, an unknown order or a position of another order, DatabaseError.

        Args:
            ids: Only these documents; None for all.
            filter: Only documents that match; None for all.
            sort: By source, or by a number with the largest first; equal ones by source.
            after: Source and collection of the last document of the previous page, after the number that is sorted by
                (microseconds since 1970 of `updated_at`).
            limit: Documents of a page; None for all.
        """
        return self._documents.list_documents(
            ids=None if ids is None else list(ids),
            condition=None if filter is None else compile_filter(filter),
            sort=sort,
            after=after,
            limit=limit,
        )

    def count_documents(self, filter: Filter | None = None) -> int:  # noqa: A002
        """Count the documents that this reader may read.

        Args: filter: Only documents that match. Raises RequestError for a malformed one, DatabaseError.
        """
        condition = None if filter is None else compile_filter(filter)
        return self._documents.count_documents(condition)

    def last_changes(self) -> dict[str, str]:
        """Return what identifies the state of each collection, for this reader.

        If it is the same as before, `documents` lists the same. Raises DatabaseError.
        """
        return self._documents.read_last_changes()

    def department_totals(self) -> tuple[int, dict[str, int]]:
        """Count the documents that this reader may read, and chunks by department.

        The department is in the metadata or is the folder, as the settings of the collection say; else it is the one of
        the reader that may read the document, else `general`. Of all collections. Raises DatabaseError.
        """
        parts = self._parts
        key = parts.settings.rag.access.key
        documents, totals = self._documents.read_folder_totals(key=key)
        settings = {
            name: parts.pipelines.get(parts.database.app, self._tenant, name).settings.rag
            for name in {total.collection for total in totals}
        }
        return documents, count_departments(totals, settings.__getitem__)

    def document_ids(self, sources: Iterable[str]) -> list[uuid.UUID]:
        """Return the ids of documents with these sources in the collection.

        Whether there are such documents or not: an id follows from tenant, collection and source.
        """
        return [document_id(self._tenant.id, self._write_collection, source) for source in sources]

    def document_texts(self, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
        """Return whole documents by id, those that this reader may read.

        If an audit log is kept, it records the lines of each. Raises DatabaseError.
        """
        document_ids = list(ids)
        if not self.audited:
            return self._documents.read_texts_by_id(document_ids)
        texts: dict[uuid.UUID, str] = {}
        for identity in document_ids:
            parts = []
            first, last = 1, 1
            while first <= last and (lines := self.read_lines(identity, first=first, count=_MAX_LINES)) is not None:
                parts.append(lines.text)
                first, last = lines.line_end + 1, lines.total_lines
            if parts:
                texts[identity] = "\n".join(parts)
        return texts

    def texts(self) -> list[tuple[str, str]]:
        """Return source and text of each document that this reader may read.

        Sorted by source. Raises RequestError if an audit log is kept: the log records which passages a reader saw, not
        whole documents. Raises DatabaseError.
        """
        if self.audited:
            raise RequestError(
                "texts() returns whole documents, which the audit log cannot record; use search() or context(), "
                "or disable rag.audit.enabled for the collections"
            )
        return self._documents.read_texts()

    def read_lines(self, document_id: uuid.UUID, *, first: int = 1, count: int = 200) -> DocumentLines | None:
        """Return lines of a document, or None if this reader finds none.

        Use it to show the surroundings of a citation. The lines are in the audit log, if one is kept. Raises
        RequestError if the document has no such line, DatabaseError.

        Args:
            first: The first line, from 1.
            count: Number of lines, 10,000 at most.
        """
        if not 1 <= first <= _LAST_LINE or not 1 <= count <= _MAX_LINES:
            raise RequestError(
                f"{count} lines from line {first} requested; start at 1 or later and request 1 to {_MAX_LINES}"
            )
        lines = self._documents.read_lines(document_id, first=first, count=count)
        if lines is None:
            return None
        if first > lines.total_lines:
            raise RequestError(f"the document has {lines.total_lines} lines and no line {first}; request earlier ones")
        policy = self._audit_policy(lines.document.collection)
        if policy.enabled:
            record_event(self._parts.database.app, self._reader, lines, policy, self._pipelines().settings_hash)
        return lines

    def sections(self, document_id: uuid.UUID) -> list[DocumentSection]:
        """List the sections of a document, in its order.

        The result is empty where the reader may read none, or the document has no text. `read_lines` reads one. Raises
        DatabaseError.
        """
        return self._documents.read_sections(document_id)

    def outline(self, document_id: uuid.UUID) -> DocumentOutline | None:
        """Return who may read a document, its versions, and its chunks.

        The result is None if this reader finds none. Raises DatabaseError.
        """
        return self._documents.read_outline(document_id)

    def rectangles(
        self, document_id: uuid.UUID, start: int, end: int, *, version: int | None = None
    ) -> list[Rectangle]:
        """List the places of a span on the pages of a PDF.

        A line or a table each. The result is empty where this reader finds no such document, or it has no pages. Raises
        DatabaseError.

        Args:
            start: First character of the span, as a citation has it.
            end: The character after its last one.
            version: The version that the span is of; None for the current one. Empty where the document has another.
        """
        return self._documents.read_rectangles(document_id, (start, end), version)

    def read_original(self, document_id: uuid.UUID) -> bytes | None:
        """Return the file of a document.

        The result is None where this reader finds no such document, or `ingestion.keep_originals` did not keep its
        file. The call is in the audit log, if one is kept. Raises DatabaseError.
        """
        original = self._find_original(document_id)
        if original is None:
            return None
        source, data = original
        self.record_access(AuditKind.SEARCH, f"file of {source}", AuditOutcome.HITS)
        return data

    def render_page(self, document_id: uuid.UUID, page: int) -> bytes | None:
        """Render a page of a stored PDF file as a PNG.

        The result is None where `read_original` returns none, and for other formats. The call is in the audit log, if
        one is kept. Raises ParseError where the file has no such page, DatabaseError.

        Args:
            page: Number of the page, from 1.
        """
        info = next(iter(self.documents(ids=[document_id])), None)
        if info is None or info.media_type != media_types.PDF or not info.has_original:
            return None
        if page < 1:
            raise RequestError(f"page {page} is requested; pages count from 1")

        def read() -> bytes | None:
            original = self._find_original(document_id)
            return None if original is None else original[1]

        picture = self._parts.page_images.render((self._tenant.id, document_id, info.content_hash, page), read)
        if picture is not None:
            self.record_access(AuditKind.SEARCH, f"page {page} of {info.source}", AuditOutcome.HITS)
        return picture

    def _find_original(self, document_id: uuid.UUID) -> tuple[str, bytes] | None:
        return self._documents.read_original(document_id)
