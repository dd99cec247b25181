"""The write side: documents in, published versions out, and a report that adds up.

Documents are read and chunked one by one, embedded and published in batches: a model is fast on many texts, a
transaction on many rows. What fails is recorded with its reason and the rest goes on; a lost database ends the run.
"""

import hashlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import psycopg

from kosmos_rag.core.config import ParsingSettings, Settings
from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.protocols import Chunker
from kosmos_rag.core.telemetry.metrics import INGESTION_STAGE_SECONDS
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import EVERYONE, IngestFailure, IngestReport, SourceDocument, is_text
from kosmos_rag.ingestion import discovery as files
from kosmos_rag.ingestion.acl import apply_access_policy, remove_unauthorised
from kosmos_rag.ingestion.chunking import build_chunker
from kosmos_rag.ingestion.document import (
    HEADER_TOKENS,
    ChunkedDocument,
    document_id,
    fingerprint,
    pipeline_key,
    process_document,
)
from kosmos_rag.ingestion.parsing.ocr import require_ocr
from kosmos_rag.ingestion.publisher import Publisher
from kosmos_rag.ingestion.sandbox.client import start_parser
from kosmos_rag.ingestion.sources.listing import Entry, Listing
from kosmos_rag.models.embedding.registry import EmbedderRegistry
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.publish import remove_documents
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

Progress = Callable[[int, int, str], None]
"""Called after each document with how many are done, how many there are, and its source."""

Item = SourceDocument | files.Found

BATCH_CHUNKS = 1024
"""Chunks embedded and published together. The statistics change once a batch and lexeme: larger is faster, and longer
between two signs of progress."""
_WINDOW_DOCUMENTS = 256
_WINDOW_BYTES = 8 * 1024 * 1024


@dataclass(kw_only=True)
class _Ledger:
    """What has happened so far in one run."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    chunks: int = 0
    reused: int = 0
    failed: list[IngestFailure] = field(default_factory=list)
    fallbacks: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic)

    def fail(self, source: str, error: IngestionError) -> None:
        self.failed.append(IngestFailure(source=source, code=error.code, message=str(error)))

    def publish(self, document: ChunkedDocument, *, was_there: bool) -> None:
        self.changed += was_there
        self.new += not was_there
        self.chunks += len(document.chunks)
        self.fallbacks.update(c.fallback_reason for c in document.chunks if c.fallback_reason)

    def report(self) -> IngestReport:
        return IngestReport(
            new=self.new,
            changed=self.changed,
            unchanged=self.unchanged,
            removed=self.removed,
            failed=tuple(self.failed),
            chunks=self.chunks,
            reused=self.reused,
            fallbacks=dict(self.fallbacks),
            seconds=round(time.monotonic() - self.started, 3),
        )


class Ingestor:
    """Ingests into any tenant of one database with one model and one chunker. Thread-safe."""

    def __init__(
        self, database: Database, embedders: EmbedderRegistry, settings: Settings, telemetry: Telemetry
    ) -> None:
        self._database = database
        self._telemetry = telemetry
        self._embedders = embedders
        self._embedder = embedders.default
        self.settings = settings
        self._key = pipeline_key(settings, embedders.default.name)

    @cached_property
    def _chunker(self) -> Chunker:
        budget = self._embedder.max_tokens - HEADER_TOKENS
        return build_chunker(self.settings.rag.chunking, embedder=self._embedder, max_tokens=budget)

    @cached_property
    def _limits(self) -> ParsingSettings:
        limits = self.settings.ingestion.parsing
        if limits.ocr:
            require_ocr()
        return limits

    def run(
        self,
        tenant: TenantRef,
        collection: str,
        items: Iterable[SourceDocument | Path],
        *,
        prune: bool,
        on_progress: Progress | None,
    ) -> IngestReport:
        """Ingest paths and documents; with `prune`, remove those whose file is gone from a folder that was given.

        Raises DatabaseUnavailable, DatabaseNotReady, ModelError; failures of single documents are in the report.
        """
        items = list(items)
        found = files.discover([item for item in items if isinstance(item, Path)], self.settings.ingestion)
        todo: list[Item] = [*found.files, *(item for item in items if isinstance(item, SourceDocument))]
        ledger = _Ledger(failed=found.failures)
        publisher = self.publisher(tenant, collection)
        done = 0
        for window in self._windows(todo, ledger):
            self._ingest_window(tenant, collection, [document for document in window if document], publisher, ledger)
            for item in todo[done : done + len(window)]:
                done += 1
                if on_progress is not None:
                    on_progress(done, len(todo), str(item.source))
        if prune:
            self._prune(tenant, collection, found.listings, {item.source for item in todo}, ledger)
        ledger.removed += self._withdraw(tenant, collection, ledger.failed)
        ledger.reused = publisher.reused
        return ledger.report()

    def delete(self, tenant: TenantRef, collection: str, sources: Sequence[str]) -> int:
        """Remove documents by source with all their rows. Returns how many there were."""
        ids = [document_id(tenant.id, collection, source) for source in sources if is_text(source)]
        with self._database.worker.transaction(tenant.id, [EVERYONE]) as connection:
            return remove_documents(connection, tenant.id, ids, collection=collection)

    def stored(self, tenant: TenantRef, collection: str) -> dict[str, uuid.UUID]:
        """Return the ids of all documents of a collection by source, in its order, whoever may read them."""
        with self._database.worker.transaction(tenant.id, [EVERYONE]) as connection:
            return _stored(connection, tenant, collection)

    def _windows(self, todo: Sequence[Item], ledger: _Ledger) -> Iterator[list[SourceDocument | None]]:
        """Load the documents in windows of bounded size. What cannot be loaded is recorded, and None here."""
        window: list[SourceDocument | None] = []
        size = 0
        for item in todo:
            try:
                document = item.load() if isinstance(item, files.Found) else item
                self.check(document)
                window.append(document)
                size += len(document.data)
            except IngestionError as error:
                ledger.fail(str(item.source), error)
                window.append(None)
            if len(window) >= _WINDOW_DOCUMENTS or size >= _WINDOW_BYTES:
                yield window
                window, size = [], 0
        if window:
            yield window

    def _ingest_window(
        self,
        tenant: TenantRef,
        collection: str,
        documents: Sequence[SourceDocument],
        publisher: Publisher,
        ledger: _Ledger,
    ) -> None:
        ids = [document_id(tenant.id, collection, document.source) for document in documents]
        stored = self.fingerprints(tenant, ids)
        batch: list[ChunkedDocument] = []

        def flush() -> None:
            for document, error in publisher.publish(batch):
                if error is None:
                    ledger.publish(document, was_there=document.id in stored)
                    stored[document.id] = document.fingerprint
                else:
                    ledger.fail(document.source.source, error)
            batch.clear()

        for key, document in zip(ids, documents, strict=True):
            if any(waiting.id == key for waiting in batch):
                flush()  # the same source twice in one call: the later one replaces the earlier
            if stored.get(key) == self.fingerprint(document):
                ledger.unchanged += 1
                continue
            try:
                batch.append(self.process_document(key, document, publisher.languages))
            except IngestionError as error:
                ledger.fail(document.source, error)
            if sum(len(waiting.chunks) for waiting in batch) >= BATCH_CHUNKS:
                flush()
        flush()

    def warm_up(self) -> None:
        """Load what the first document would wait for: the model, the chunker, the process that parses.

        Raises ModelUnavailable, ConfigError.
        """
        _ = self._limits
        start_parser()
        self._embedder.embed(["warm"])
        _ = self._chunker

    def fingerprint(self, document: SourceDocument) -> str:
        """Return what a stored document would have as its fingerprint if it were this one, made by these settings.

        Raises IngestionError where these settings ask for its department and it has none.
        """
        return fingerprint(apply_access_policy(document, self.settings.rag.access), self._key)

    def mark(self, entry: Entry) -> str | None:
        """Return what changes with what a source says of a document, and with these settings."""
        if entry.etag is None:
            return None
        return hashlib.sha256(f"{entry.etag}\x1f{self._key}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def check(self, document: SourceDocument) -> None:
        """Raise IngestionError where a document cannot be stored as it is."""
        files.check(document, max_bytes=self.settings.ingestion.max_file_bytes)
        apply_access_policy(document, self.settings.rag.access)

    def publisher(self, tenant: TenantRef, collection: str) -> Publisher:
        """Return what publishes into a collection."""
        return Publisher(self._database, self._embedders, tenant, collection, self._telemetry)

    def process_document(
        self, key: uuid.UUID, document: SourceDocument, languages: Collection[str], *, mark: str | None = None
    ) -> ChunkedDocument:
        """Parse and split a document whose id is `key`. Raises IngestionError."""
        with self._telemetry.time_stage(INGESTION_STAGE_SECONDS, "chunk"):
            return process_document(
                apply_access_policy(document, self.settings.rag.access),
                identity=key,
                key=self._key,
                language=self.settings.ingestion.language,
                languages=languages,
                chunker=self._chunker,
                tokenizer=self._embedder.tokenizer,
                limits=self._limits,
                find_headings=self.settings.rag.chunking.plain_headings,
                mark=mark,
            )

    def fingerprints(self, tenant: TenantRef, ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
        """Return the fingerprints of those of the documents that are stored."""
        values = {"tenant_id": tenant.id, "document_ids": list(ids)}
        with self._database.worker.transaction(tenant.id, [EVERYONE]) as connection:
            return dict(connection.execute(statement("fingerprints"), values).fetchall())

    def _withdraw(self, tenant: TenantRef, collection: str, failures: Sequence[IngestFailure]) -> int:
        """Remove what is stored of documents that failed and would stay open to all; returns how many there were."""
        failed = {document_id(tenant.id, collection, one.source): one.code for one in failures if is_text(one.source)}
        with self._database.worker.transaction(tenant.id, [EVERYONE]) as connection:
            return remove_unauthorised(connection, tenant.id, failed, self.settings.rag.access, collection=collection)

    def _prune(
        self, tenant: TenantRef, collection: str, listings: Sequence[Listing], seen: set[str], ledger: _Ledger
    ) -> None:
        with self._database.worker.transaction(tenant.id, [EVERYONE]) as connection:
            gone: dict[str, uuid.UUID] = {}
            stored = _stored(connection, tenant, collection)
            for listing in listings:
                missing = files.missing_from(listing, stored, seen)
                if refusal := listing.refusal_to_prune(missing):
                    ledger.failed.append(refusal)
                else:
                    gone |= {source: stored[source] for source in missing}
            if gone:
                ledger.removed = remove_documents(connection, tenant.id, list(gone.values()), collection=collection)


def _stored(connection: psycopg.Connection, tenant: TenantRef, collection: str) -> dict[str, uuid.UUID]:
    values = {"tenant_id": tenant.id, "collection": collection}
    return {source: key for key, source in connection.execute(statement("sources"), values).fetchall()}
