"""From chunked documents to published ones: embed a batch together, publish it in one transaction."""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cached_property
from itertools import accumulate
from typing import Protocol

import numpy as np
import psycopg

from kosmos_rag.core.errors import EmbeddingSpaceChanged, IngestionError, StatementFailed
from kosmos_rag.core.protocols import Embedder, Vectors
from kosmos_rag.core.telemetry.metrics import INGESTION_EMBEDDED_DOCUMENTS, INGESTION_STAGE_SECONDS
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import EVERYONE, Space
from kosmos_rag.ingestion.document import ChunkedDocument, content_hash, version_id
from kosmos_rag.models.embedding.registry import EmbedderRegistry
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.publish import PreparedDocument, publish, stored_vectors, text_hash
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, ensure_tenant, writable_spaces


class Fence(Protocol):
    """What entitles a writer to documents, where another may take them over: the leases of its jobs.

    Both methods are called within the transaction that publishes, so that the documents and what becomes of the
    entitlement are committed together or not at all.
    """

    def hold(self, connection: psycopg.Connection, document_ids: Sequence[uuid.UUID]) -> Collection[uuid.UUID]:
        """Return those that are still the writer's, and keep them so until the transaction ends. Called first."""
        ...

    def settle(self, connection: psycopg.Connection, documents: Sequence[PreparedDocument]) -> None:
        """Record that these, which were held, have been written. Called last."""
        ...


class Publisher:
    """Publishes into one collection. Tenant, collection and embedding space are made with the first document."""

    def __init__(
        self,
        database: Database,
        embedders: EmbedderRegistry,
        tenant: TenantRef,
        collection: str,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._database = database
        self._telemetry = telemetry or Telemetry()
        self._embedders = embedders
        self._tenant = tenant
        self._collection = collection
        self._reused = 0

    @property
    def reused(self) -> int:
        """Chunks so far whose text had been embedded before, in each space, and was not again."""
        return self._reused

    def publish(
        self, documents: Sequence[ChunkedDocument], *, fence: Fence | None = None
    ) -> Iterator[tuple[ChunkedDocument, IngestionError | None]]:
        """Embed and publish; yields each document with None, or with why it was not written.

        Codes: `storage` where the database refused it, `lease_lost` where the fence no longer held it.
        Raises EmbeddingSpaceMismatch, ModelError, DatabaseUnavailable.
        """
        if not documents:
            return
        prepared = self._prepare(documents)
        try:
            held = self._write(prepared, fence)
        except EmbeddingSpaceChanged:
            # What is written in both spaces already is found by its hash, the rest is embedded by the other model.
            yield from self.publish(documents, fence=fence)
        except StatementFailed:
            # One document may have spoilt the transaction of all: find it by writing them one by one.
            for document, ready in zip(documents, prepared, strict=True):
                yield document, self._write_alone(ready, fence)
        else:
            for document in documents:
                yield document, None if document.id in held else _lost(document.source.source)

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """What a document may be analysed as: the text search configurations of the server."""
        with self._database.worker.transaction(self._tenant.id, [EVERYONE]) as connection:
            return tuple(name for (name,) in connection.execute(statement("text_search_languages")).fetchall())

    @cached_property
    def _ensured(self) -> bool:
        space = self._embedders.default_space(self._tenant.id)
        with self._database.worker.transaction(self._tenant.id, [EVERYONE]) as connection:
            ensure_tenant(connection, self._tenant, self._collection, space, now=datetime.now(UTC))
        return True

    def _spaces(self) -> list[tuple[Space, Embedder]]:
        """Return the spaces that the tenant's vectors are written in, each with its model; the first is live.

        Looked up for each batch: one may have been added since the last, or another one may be live.
        """
        _ = self._ensured
        with self._database.worker.transaction(self._tenant.id, [EVERYONE]) as connection:
            spaces = writable_spaces(connection, self._tenant.id)
        return self._embedders.get_writable(spaces, self._tenant.name)

    def _prepare(self, documents: Sequence[ChunkedDocument]) -> list[PreparedDocument]:
        with self._observed("embed"):
            vectors = self._embed([text for document in documents for text in document.indexed])
        self._telemetry.record(INGESTION_EMBEDDED_DOCUMENTS, len(documents))
        ends = list(accumulate(len(document.chunks) for document in documents))
        return [
            _prepared(document, {space: rows[end - len(document.chunks) : end] for space, rows in vectors.items()})
            for document, end in zip(documents, ends, strict=True)
        ]

    def _embed(self, texts: Sequence[str]) -> dict[uuid.UUID, Vectors]:
        """Return the vectors of the texts by space. A text that the tenant has a vector of is not embedded again."""
        hashes = [text_hash(text) for text in texts]
        by_hash = dict(zip(hashes, texts, strict=True))
        vectors, embedded = {}, set()
        for space, embedder in self._spaces():
            with self._database.worker.transaction(self._tenant.id, [EVERYONE]) as connection:
                found = stored_vectors(connection, self._tenant.id, space.id, by_hash.keys())
            missing = [key for key in by_hash if key not in found]
            if missing:
                found |= zip(missing, embedder.embed([by_hash[key] for key in missing]), strict=True)
            vectors[space.id] = np.array([found[key] for key in hashes]).reshape(len(texts), space.dimensions)
            embedded.update(missing)
        self._reused += sum(key not in embedded for key in hashes)
        return vectors

    def _write(self, documents: Sequence[PreparedDocument], fence: Fence | None) -> Collection[uuid.UUID]:
        """Publish those documents that the fence holds; returns their ids."""
        with self._observed("write"), self._database.worker.transaction(self._tenant.id, [EVERYONE]) as connection:
            held: Collection[uuid.UUID] = [document.id for document in documents]
            if fence is not None:
                held = fence.hold(connection, list(held))
            if ours := [document for document in documents if document.id in held]:
                publish(connection, self._tenant.id, ours, collection=self._collection, now=datetime.now(UTC))
                if fence is not None:
                    fence.settle(connection, ours)
            return held

    def _observed(self, stage: str) -> AbstractContextManager[None]:
        return self._telemetry.time_stage(INGESTION_STAGE_SECONDS, stage)

    def _write_alone(self, document: PreparedDocument, fence: Fence | None) -> IngestionError | None:
        try:
            held = self._write([document], fence)
        except StatementFailed as error:
            return IngestionError("storage", f"{document.source} was refused by the database: {error}")
        return None if document.id in held else _lost(document.source)


def _lost(source: str) -> IngestionError:
    return IngestionError("lease_lost", f"{source} is another writer's now; what that one makes of it is what is kept")


def _prepared(document: ChunkedDocument, vectors: Mapping[uuid.UUID, Vectors]) -> PreparedDocument:
    source = document.source
    return PreparedDocument(
        id=document.id,
        version_id=version_id(document),
        source=source.source,
        title=document.title,
        media_type=document.parsed.media_type,
        language=document.language,
        metadata=dict(source.metadata),
        acl=source.acl,
        content_hash=content_hash(source),
        fingerprint=document.fingerprint,
        bytes=len(source.data),
        text=document.parsed.text,
        pages=document.parsed.pages,
        chunks=document.chunks,
        indexed=document.indexed,
        vectors=vectors,
        source_etag=document.mark,
    )
