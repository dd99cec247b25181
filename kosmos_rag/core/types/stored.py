"""Stored documents and collections, and reports of ingestion."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

from kosmos_rag.core.types.documents import Note
from kosmos_rag.core.types.serialize import Serializable


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentInfo(Serializable):
    """A live document, as `documents` lists it."""

    id: uuid.UUID
    source: str
    collection: str
    title: str
    media_type: str
    language: str
    """Text search configuration that it was analysed with."""
    version: int
    """Counts from 1; raised by each publication of changed content."""
    content_hash: str
    """SHA-256 of the bytes as they came in, hexadecimal."""
    bytes: int
    chunks: int
    metadata: Mapping[str, Any]
    notes: tuple[Note, ...] = ()
    """What of the file was guessed or could not be read."""
    has_original: bool = False
    """Whether its file is stored (`ingestion.keep_originals`), so that its pages can be shown."""
    updated_at: datetime

    def position(self, sort: "DocumentSort") -> "DocumentPosition":
        """Return the position of the document in a list of this order."""
        place = (self.source, self.collection)
        if sort == "source":
            return place
        since = (self.updated_at - _EPOCH) // timedelta(microseconds=1)
        return {"updated_at": since, "chunks": self.chunks, "bytes": self.bytes}[sort], *place


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DocumentSort = Literal["source", "updated_at", "chunks", "bytes"]
"""Order of a list of documents: by source, or by a number with the largest first."""
DocumentPosition: TypeAlias = tuple[str, str] | tuple[int, str, str]
"""Place of a document in a list: source and collection, after the number that the list is sorted by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentLines(Serializable):
    """Lines of a live document, in the text that citations refer to."""

    document: DocumentInfo
    version_id: uuid.UUID
    text: str
    start: int
    """Offset of the text in its document."""
    line_start: int
    line_end: int
    total_lines: int
    """Of the whole document."""
    page_start: int | None
    page_end: int | None
    total_pages: int
    """Of the whole document; 0 where the format has no pages."""
    chunk_ids: tuple[uuid.UUID, ...]
    """The chunks that have text of these lines, in the order of the document."""

    @property
    def end(self) -> int:
        """Where the text ends in its document."""
        return self.start + len(self.text)

    @property
    def pages(self) -> tuple[int, int] | None:
        """First and last page, from 1.

        The result is None where the format has no pages.
        """
        return None if self.page_start is None else (self.page_start, self.page_end or self.page_start)


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectionInfo(Serializable):
    """A collection of a tenant, as `collection list` shows it."""

    name: str
    preset: str | None
    """Name of its preset; None if it has the settings of the process."""
    chunks: int
    created_at: datetime | None
    """Time of the assignment of its preset."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stats(Serializable):
    """Totals of what a reader may read."""

    total_documents: int
    total_chunks: int
    departments: Mapping[str, int]
    """Chunks by department, `general` for documents without one; they add up to `total_chunks`."""
    embedding_dimension: int


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestFailure(Serializable):
    """A document that was not ingested, and why.

    What was stored of it before is untouched, except where departments decide and it would stay open to all.
    """

    source: str
    code: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestReport(Serializable):
    """Report of one `ingest` call.

    seen = new + changed + unchanged + failed + empty.
    """

    new: int
    changed: int
    unchanged: int
    removed: int
    """Documents of an ingested folder whose file was removed, and failed ones that everyone could still read."""
    failed: tuple[IngestFailure, ...]
    chunks: int
    """Chunks written by this call."""
    reused: int
    """Chunks with an existing vector: their texts were not embedded again."""
    fallbacks: Mapping[str, int]
    """Chunks that a fallback splitter made, by reason."""
    seconds: float
    empty: int = 0
    """Listed files without text, such as a page of front matter alone. A stored version was removed."""

    @property
    def seen(self) -> int:
        """Documents that the call checked."""
        return self.new + self.changed + self.unchanged + len(self.failed) + self.empty


@dataclass(frozen=True, kw_only=True, slots=True)
class PermissionReport(Serializable):
    """What a pass of a permission feed did."""

    documents: int
    """Documents that the feed names, ingested or not."""
    changed: int
    """Ingested documents that other principals may read now."""
    unnamed: int
    """Ingested documents that the feed no longer names: they are unreadable."""
    unknown_containers: tuple[str, ...]
    """Containers of documents that the feed does not define; they grant nothing. The first 100."""
