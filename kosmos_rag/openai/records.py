"""Records of stored files, vector stores and the files in them.

A vector store is a collection with a name of its own. A stored file keeps its original bytes; a collection that it is
attached to has a document made from it.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from kosmos_rag.core.stored_files import parse_file_source, source_of_file
from kosmos_rag.core.types.serialize import Serializable


class FileStatus(StrEnum):
    """State of a file in a vector store."""

    IN_PROGRESS = "in_progress"
    """Its job waits or runs."""
    COMPLETED = "completed"
    """The collection has its document."""
    FAILED = "failed"
    """Its job failed permanently; `code` and `message` have the reason."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileInfo(Serializable):
    """A stored file."""

    id: uuid.UUID
    filename: str
    """As it was uploaded; it may begin with folders."""
    bytes: int
    purpose: str
    readers: tuple[str, ...]
    """Principals that may read the documents that are made from it."""
    created_at: datetime

    @property
    def source(self) -> str:
        """Source of the documents that are made from it."""
        return source_of_file(self.id, self.filename)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileCounts(Serializable):
    """Number of files by status."""

    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        """Number of all files."""
        return self.in_progress + self.completed + self.failed + self.cancelled


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorStoreInfo(Serializable):
    """A collection as a vector store, as its reader sees it."""

    collection: str
    name: str
    description: str | None
    metadata: Mapping[str, str]
    created_at: datetime
    bytes: int
    """Of the readable documents."""
    counts: FileCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorStoreFileInfo(Serializable):
    """A file of a vector store.

    It is a document, or an attached file whose job has not made one.
    """

    id: uuid.UUID
    """Of the stored file; of the document where it was not made from one."""
    document_id: uuid.UUID
    collection: str
    source: str
    attributes: Mapping[str, Any]
    bytes: int
    status: FileStatus
    created_at: datetime
    code: str | None = None
    """Why it failed; stable."""
    message: str | None = None

    @property
    def filename(self) -> str:
        """Name of the file, without the id that its source has."""
        return parse_file_source(self.source, self.document_id)[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileBatchInfo(Serializable):
    """Files that were attached together, with their present states."""

    id: uuid.UUID
    collection: str
    file_ids: tuple[uuid.UUID, ...]
    created_at: datetime
    counts: FileCounts
