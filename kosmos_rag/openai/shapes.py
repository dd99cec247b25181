"""OpenAI's objects, and how they are made from the library's records."""

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel

from kosmos_rag.core.stored_files import file_name
from kosmos_rag.openai.records import (
    FileBatchInfo,
    FileCounts,
    FileInfo,
    FileStatus,
    VectorStoreFileInfo,
    VectorStoreInfo,
)
from kosmos_rag.openai.vector_stores import scalars

T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")

_SERVER_ERRORS = frozenset({"crashed", "timeout", "memory", "storage", "disk_full", "internal", "lease_lost"})
"""Codes of failures whose cause is not the file."""
_UNSUPPORTED = frozenset({"unsupported", "unsupported_type", "binary"})


class FileObject(BaseModel):
    """A stored file."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"
    expires_at: None = None

    @classmethod
    def from_record(cls, info: FileInfo) -> Self:
        """Convert a file."""
        return cls(
            id=file_name(info.id),
            bytes=info.bytes,
            created_at=_seconds(info.created_at),
            filename=info.filename,
            purpose=info.purpose,
        )


class Deleted(BaseModel):
    """What was deleted."""

    id: str
    object: str
    deleted: Literal[True] = True


class Counts(BaseModel):
    """Number of files by status."""

    in_progress: int
    completed: int
    failed: int
    cancelled: int
    total: int

    @classmethod
    def from_record(cls, counts: FileCounts) -> Self:
        """Convert counts."""
        return cls(
            in_progress=counts.in_progress,
            completed=counts.completed,
            failed=counts.failed,
            cancelled=counts.cancelled,
            total=counts.total,
        )


class VectorStore(BaseModel):
    """A collection."""

    id: str
    object: Literal["vector_store"] = "vector_store"
    created_at: int
    name: str
    description: str | None
    metadata: dict[str, str]
    usage_bytes: int
    file_counts: Counts
    status: Literal["in_progress", "completed"]
    expires_after: None = None
    expires_at: None = None
    last_active_at: None = None

    @classmethod
    def from_record(cls, info: VectorStoreInfo) -> Self:
        """Convert a vector store."""
        return cls(
            id=info.collection,
            created_at=_seconds(info.created_at),
            name=info.name,
            description=info.description,
            metadata=dict(info.metadata),
            usage_bytes=info.bytes,
            file_counts=Counts.from_record(info.counts),
            status="in_progress" if info.counts.in_progress else "completed",
        )


class ChunkingStrategy(BaseModel):
    """The strategy of the collection, which has no name here."""

    type: Literal["other"] = "other"


class LastError(BaseModel):
    """Why a file is not in a vector store."""

    code: Literal["server_error", "unsupported_file", "invalid_file"]
    message: str


class VectorStoreFile(BaseModel):
    """A file of a vector store."""

    id: str
    object: Literal["vector_store.file"] = "vector_store.file"
    created_at: int
    vector_store_id: str
    usage_bytes: int
    status: FileStatus
    last_error: LastError | None
    attributes: dict[str, str | int | float | bool]
    chunking_strategy: ChunkingStrategy = ChunkingStrategy()

    @classmethod
    def from_record(cls, info: VectorStoreFileInfo) -> Self:
        """Convert a file of a vector store."""
        return cls(
            id=file_name(info.id),
            created_at=_seconds(info.created_at),
            vector_store_id=info.collection,
            usage_bytes=info.bytes if info.status is FileStatus.COMPLETED else 0,
            status=info.status,
            last_error=_last_error(info),
            attributes=scalars(info.attributes),
        )


class FileBatch(BaseModel):
    """Files that were attached together."""

    id: str
    object: Literal["vector_store.files_batch"] = "vector_store.files_batch"
    created_at: int
    vector_store_id: str
    status: FileStatus
    file_counts: Counts

    @classmethod
    def from_record(cls, info: FileBatchInfo) -> Self:
        """Convert a batch."""
        return cls(
            id=batch_name(info.id),
            created_at=_seconds(info.created_at),
            vector_store_id=info.collection,
            status=_batch_status(info.counts),
            file_counts=Counts.from_record(info.counts),
        )


class ListObject(BaseModel, Generic[T]):
    """A page of a list."""

    object: Literal["list"] = "list"
    data: list[T]
    first_id: str | None
    last_id: str | None
    has_more: bool


class TextContent(BaseModel):
    """A text."""

    type: Literal["text"] = "text"
    text: str


class FileContent(BaseModel):
    """The text of a document."""

    object: Literal["vector_store.file_content.page"] = "vector_store.file_content.page"
    data: list[TextContent]
    has_more: Literal[False] = False
    next_page: None = None


def build_list(shape: Callable[[R], Any], records: Sequence[R], *, has_more: bool) -> dict[str, Any]:
    """Return a page of a list.

    Args:
        shape: Converts a record.
        has_more: Whether there is another page in this direction.
    """
    data = [shape(record) for record in records]
    first, last = (data[0].id, data[-1].id) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more}


def batch_name(batch_id: uuid.UUID) -> str:
    """Return the id of a batch as the interface writes it."""
    return f"vsfb_{batch_id.hex}"


def _seconds(at: datetime) -> int:
    return int(at.timestamp())


def _last_error(info: VectorStoreFileInfo) -> LastError | None:
    if info.status is not FileStatus.FAILED:
        return None
    code: Literal["server_error", "unsupported_file", "invalid_file"] = "invalid_file"
    if info.code in _SERVER_ERRORS:
        code = "server_error"
    elif info.code in _UNSUPPORTED:
        code = "unsupported_file"
    return LastError(code=code, message=f"{info.code}: {info.message}")


def _batch_status(counts: FileCounts) -> FileStatus:
    if counts.in_progress:
        return FileStatus.IN_PROGRESS
    if counts.cancelled:
        return FileStatus.CANCELLED
    return FileStatus.FAILED if counts.total and counts.failed == counts.total else FileStatus.COMPLETED
