"""What a tenant has, over the wire: documents, jobs, collections, totals."""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, Field

from kosmos_rag.records import CollectionInfo, DocumentInfo, JobInfo, JobState
from kosmos_rag.service.wire.questions import Request


class DocumentView(BaseModel):
    """A document that the reader may read."""

    id: uuid.UUID
    source: str
    collection: str
    title: str
    media_type: str
    language: str
    version: int
    content_hash: str
    bytes: int
    chunks: int
    metadata: dict[str, Any]
    updated_at: datetime

    @classmethod
    def of(cls, info: DocumentInfo) -> Self:
        """Tell of a document."""
        return cls(
            id=info.id,
            source=info.source,
            collection=info.collection,
            title=info.title,
            media_type=info.media_type,
            language=info.language,
            version=info.version,
            content_hash=info.content_hash,
            bytes=info.bytes,
            chunks=info.chunks,
            metadata=dict(info.metadata),
            updated_at=info.updated_at,
        )


class DocumentPage(BaseModel):
    """Documents by source; `next` is the cursor of the page after, null at the end."""

    documents: list[DocumentView]
    next: str | None


class JobView(BaseModel):
    """A job of the tenant."""

    id: int
    collection: str
    kind: str
    key: str
    source: str | None
    state: JobState
    priority: int
    run_at: datetime
    every_s: float | None
    attempt: int
    lost: int
    worker: str | None
    outcome: str | None
    code: str | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, info: JobInfo) -> Self:
        """Tell of a job; the spec of its source stays here, for it may hold secrets."""
        return cls(
            id=info.id,
            collection=info.collection,
            kind=info.kind,
            key=info.key,
            source=_source(info.payload),
            state=info.state,
            priority=info.priority,
            run_at=info.run_at,
            every_s=info.every_s,
            attempt=info.attempt,
            lost=info.lost,
            worker=info.worker,
            outcome=info.outcome,
            code=info.code,
            error=info.error,
            created_at=info.created_at,
            started_at=info.started_at,
            finished_at=info.finished_at,
        )


def _source(payload: Mapping[str, Any]) -> str | None:
    told = payload.get("document") or payload.get("entry") or {}
    return told.get("source")


class JobPage(BaseModel):
    """Jobs, the newest first; `next` is the cursor of the page after, null at the end."""

    jobs: list[JobView]
    next: str | None


class JobsChanged(BaseModel):
    """The jobs that a call has changed."""

    jobs: list[int]


class CollectionView(BaseModel):
    """A collection that has a preset, or documents that the reader may read."""

    name: str
    preset: str | None
    chunks: int
    created_at: datetime | None = Field(description="When it was given its preset.")

    @classmethod
    def of(cls, info: CollectionInfo) -> Self:
        """Tell of a collection."""
        return cls(name=info.name, preset=info.preset, chunks=info.chunks, created_at=info.created_at)


class CollectionList(BaseModel):
    """All collections, by name."""

    collections: list[CollectionView]


class CollectionRequest(Request):
    """A collection to be made."""

    name: str = Field(examples=["handbook"])
    preset: str = Field(description="One of docs/presets.md.", examples=["corporate"])


class StatsView(BaseModel):
    """What there is for this reader."""

    total_documents: int
    total_chunks: int
    departments: dict[str, int] = Field(
        description="Chunks by departments of yours that may read them, or `everyone`; others are in the total only."
    )
    embedding_dimension: int


class ReloadView(BaseModel):
    """What a reload has set going."""

    status: str
    jobs: list[int]
    stats: StatsView
