"""Stored files and vector stores: rows to records, page by page."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

import psycopg
from psycopg.rows import dict_row, kwargs_row
from psycopg.types.json import Jsonb

from kosmos_rag.core.types import JobState
from kosmos_rag.openai.records import FileCounts, FileInfo, FileStatus, VectorStoreFileInfo, VectorStoreInfo
from kosmos_rag.openai.sql import statement


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    """A page of a list sorted by time and id."""

    limit: int | None = None
    """None for all."""
    descending: bool = True
    position: tuple[datetime, uuid.UUID | str] | None = None
    """Time and id of the entry that the page follows; None for the first page."""

    @property
    def values(self) -> dict[str, Any]:
        """The parameters of the statements."""
        position, position_id = self.position or (None, None)
        return {
            "position": position,
            "position_id": position_id,
            "descending": self.descending,
            "limit": self.limit,
        }

    def backward(self) -> Self:
        """Return the page that ends before the position, in reverse order."""
        return replace(self, descending=not self.descending)


ALL = PageRequest()


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingFile:
    """An attached file without a document, by its job."""

    document_id: uuid.UUID
    source: str
    attributes: Mapping[str, Any]
    status: FileStatus
    code: str | None
    message: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingAttachment:
    """An attached file without a document, or with an unfinished job."""

    collection: str
    document_id: uuid.UUID
    job_id: uuid.UUID
    replaces: bool
    """Whether there is a readable document of an earlier job."""
    state: JobState = JobState.QUEUED
    """State of the job, which another statement reads."""


def list_files(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    *,
    ids: Collection[uuid.UUID] | None = None,
    purpose: str | None = None,
    page: PageRequest = ALL,
) -> list[FileInfo]:
    """List the files that the principals of the transaction see.

    Args:
        connection: A transaction of the app role.
        page: Order and position.
    """
    values = {"tenant_id": tenant_id, "ids": None if ids is None else list(ids), "purpose": purpose, **page.values}
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(statement("list_files"), values).fetchall()
    return [FileInfo(**{**row, "readers": tuple(row["readers"])}) for row in rows]


def list_vector_stores(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    *,
    ids: Collection[str] | None = None,
    page: PageRequest = ALL,
) -> list[VectorStoreInfo]:
    """List the collections as vector stores; the counts have readable documents only.

    Args:
        connection: A transaction of the app role.
        page: Order and position.
    """
    values = {"tenant_id": tenant_id, "ids": None if ids is None else list(ids), **page.values}
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(statement("list_vector_stores"), values).fetchall()
    return [VectorStoreInfo(counts=FileCounts(completed=row.pop("documents")), **row) for row in rows]


def list_pending_attachments(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    collections: Sequence[str],
    *,
    unfinished: Collection[uuid.UUID],
    ids: Collection[uuid.UUID] | None = None,
) -> list[PendingAttachment]:
    """Return attached files with their jobs.

    Files with a readable document and no unfinished job are left out.

    Args:
        connection: A transaction of the app role.
        unfinished: Ids of unfinished jobs.
    """
    values = {
        "tenant_id": tenant_id,
        "collections": list(collections),
        "unfinished": list(unfinished),
        "ids": None if ids is None else list(ids),
    }
    with connection.cursor(row_factory=kwargs_row(PendingAttachment)) as cursor:
        return cursor.execute(statement("pending_attachments"), values).fetchall()


def list_file_ids(
    connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str, *, page: PageRequest
) -> list[tuple[datetime, uuid.UUID]]:
    """Return times and ids of the files of a page, whatever their states.

    Args:
        connection: A transaction of the app role.
        page: Order and position.
    """
    values = {"tenant_id": tenant_id, "collection": collection, **page.values}
    return connection.execute(statement("list_file_ids"), values).fetchall()


def list_vector_store_files(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    collection: str,
    pending: Sequence[PendingFile],
    *,
    ids: Collection[uuid.UUID] | None = None,
    status: FileStatus | None = None,
    page: PageRequest = ALL,
) -> list[VectorStoreFileInfo]:
    """List the files of a collection: readable documents, and pending files.

    Args:
        connection: A transaction of the app role.
        pending: Attached files by the state of their jobs.
        page: Order and position.
    """
    values = {
        "tenant_id": tenant_id,
        "collection": collection,
        "pending_ids": [entry.document_id for entry in pending],
        "sources": [entry.source for entry in pending],
        "states": [str(entry.status) for entry in pending],
        "codes": [entry.code for entry in pending],
        "messages": [entry.message for entry in pending],
        "attributes": [Jsonb(dict(entry.attributes)) for entry in pending],
        "ids": None if ids is None else list(ids),
        "status": None if status is None else str(status),
        **page.values,
    }
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(statement("list_vector_store_files"), values).fetchall()
    return [VectorStoreFileInfo(**{**row, "status": FileStatus(row["status"])}, collection=collection) for row in rows]
