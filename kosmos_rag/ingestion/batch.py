"""From chunked documents to published ones: embed a batch together, publish it in one transaction."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property

from kosmos_rag.config import Settings
from kosmos_rag.embedding.space import require_same, space_of
from kosmos_rag.errors import IngestionError, StatementFailed
from kosmos_rag.ingestion.prepare import ChunkedDocument, content_hash, version_id
from kosmos_rag.ports import Embedder, Vectors
from kosmos_rag.records import EVERYONE, Space
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.publishing import PreparedDocument, publish
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenancy import Tenant, ensure_tenant, live_space


class Publisher:
    """Publishes into one collection. Tenant, collection and embedding space are made with the first document."""

    def __init__(
        self, database: Database, embedder: Embedder, settings: Settings, tenant: Tenant, collection: str
    ) -> None:
        self._database = database
        self._embedder = embedder
        self._settings = settings
        self._tenant = tenant
        self._collection = collection

    def publish(self, documents: Sequence[ChunkedDocument]) -> Iterator[tuple[ChunkedDocument, IngestionError | None]]:
        """Embed and publish; yields each document with None, or with why the database refused it.

        Raises SpaceMismatch, ModelError, DatabaseUnavailable.
        """
        if not documents:
            return
        _ = self._space
        prepared = self._prepare(documents)
        try:
            self._write(prepared)
        except StatementFailed:
            # One document may have spoilt the transaction of all: find it by writing them one by one.
            for document, ready in zip(documents, prepared, strict=True):
                yield document, self._write_alone(ready)
        else:
            for document in documents:
                yield document, None

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """What a document may be analysed as: the text search configurations of the server."""
        with self._database.worker.transaction(self._tenant.id, [EVERYONE]) as connection:
            return tuple(name for (name,) in connection.execute(statement("text_search_languages")).fetchall())

    @cached_property
    def _space(self) -> Space:
        ours = space_of(self._tenant.id, self._embedder, normalized=self._settings.rag.embedding.normalize)
        with self._database.worker.transaction(self._tenant.id, [EVERYONE]) as connection:
            ensure_tenant(connection, self._tenant, self._collection, ours, now=datetime.now(UTC))
            stored = live_space(connection, self._tenant.id)
        assert stored is not None, "ensure_tenant leaves a live space"
        require_same(stored, ours, self._tenant.name)
        return stored

    def _prepare(self, documents: Sequence[ChunkedDocument]) -> list[PreparedDocument]:
        vectors = self._embedder.embed([text for document in documents for text in document.indexed])
        prepared = []
        start = 0
        for document in documents:
            end = start + len(document.chunks)
            prepared.append(_prepared(document, vectors[start:end]))
            start = end
        return prepared

    def _write(self, documents: Sequence[PreparedDocument]) -> None:
        with self._database.worker.transaction(self._tenant.id, [EVERYONE]) as connection:
            publish(
                connection,
                self._tenant.id,
                documents,
                collection=self._collection,
                space_id=self._space.id,
                now=datetime.now(UTC),
            )

    def _write_alone(self, document: PreparedDocument) -> IngestionError | None:
        try:
            self._write([document])
        except StatementFailed as error:
            return IngestionError("storage", f"{document.source} was refused by the database: {error}")
        return None


def _prepared(document: ChunkedDocument, vectors: Vectors) -> PreparedDocument:
    source = document.source
    return PreparedDocument(
        id=document.id,
        version_id=version_id(document),
        source=source.source,
        title=document.title,
        media_type=document.parsed.media_type,
        language=document.language,
        metadata=dict(source.metadata),
        readers=source.readers,
        content_hash=content_hash(source),
        fingerprint=document.fingerprint,
        bytes=len(source.data),
        text=document.parsed.text,
        pages=document.parsed.pages,
        chunks=document.chunks,
        indexed=document.indexed,
        vectors=vectors,
    )
