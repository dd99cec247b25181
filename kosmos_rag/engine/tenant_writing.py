"""Write documents of a tenant: ingest, update, delete and erase them."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kosmos_rag.core.errors import DatabaseError, IngestInterrupted, RequestError
from kosmos_rag.core.telemetry import usage
from kosmos_rag.core.types import (
    ErasureReport,
    IngestReport,
    PermissionReport,
    SourceDocument,
)
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.engine.tenant_scope import TenantScope
from kosmos_rag.indexing.known_items import MIN_CHUNKS
from kosmos_rag.ingestion.permissions import PermissionSync, UnreadableDocuments, list_unreadable
from kosmos_rag.ingestion.pipeline import Progress
from kosmos_rag.ingestion.sources.spec import validate_feed
from kosmos_rag.storage.erasure import ErasureStore, Selector

log = logging.getLogger(__name__)


@name_wrong_arguments()
class DocumentWriting(TenantScope):
    """Calls that write documents, readable or not."""

    def ingest(
        self,
        items: SourceDocument | str | Path | Iterable[SourceDocument | str | Path],
        *,
        prune: bool = True,
        root: str | None = None,
        on_progress: Progress | None = None,
    ) -> IngestReport:
        """Ingest files, folders and documents; unchanged ones are skipped.

        A document that fails is in the report and does not stop the others. Raises RequestError for a root that is
        malformed or that of two folders, ConfigError, ModelError, DatabaseError.

        Args:
            items: Files, folders or documents, one or many.
            prune: Whether to remove documents of the root whose file was removed from a folder. Nothing is removed if
                the folder could not be read or is empty.
            root: What the names of files begin with, before their path in the folder: `handbook`, or `.` for nothing.
                None for the name of the folder, and of a file for that of its parent.
            on_progress: Called after each document.
        """
        several = [items] if isinstance(items, str | Path | SourceDocument) else items
        if not isinstance(several, Iterable):
            raise RequestError(f"{several!r} is nothing to ingest; give files, folders or SourceDocuments")
        writer = replace(self._reader, collection=self._write_collection)
        with self._parts.queries.charge(writer, usage.Quantity.DOCUMENTS):
            report = self._parts.ingest_pipeline.ingest(
                self._tenant,
                self._write_collection,
                [Path(item) if isinstance(item, str) else item for item in several],
                prune=prune,
                root=root,
                on_progress=on_progress,
            )
        if report.chunks >= MIN_CHUNKS:
            self._measure_known_items(report)
        return report

    def _measure_known_items(self, report: IngestReport) -> None:
        """Measure the retrievers now, so that the weights are right after a first load.

        Maintenance does so too. What is stored is reported whether they can be measured or not.
        """
        try:
            self._parts.indexes.measure_known_items(self._tenant)
        except DatabaseError as error:
            log.warning(
                "known items are not measured before the next maintenance: %s", error,
                extra={"action": "known_items_not_measured", "tenant": self.name},
            )  # fmt: skip
        except KeyboardInterrupt:
            raise IngestInterrupted(report, total=report.seen) from None

    def sync_permissions(self, feed: Mapping[str, Any]) -> PermissionReport:
        """Update who may read documents from a permission feed.

        Nothing is parsed or embedded.

        Args:
            feed: spec of the feed, as docs/permissions.md describes it. It is complete: a document of an earlier pass
                that it no longer names is readable by nobody.

        Raises:
            RequestError: the spec is malformed, or another feed names one of the documents.
            SourceError: the feed is malformed or cannot be read; nothing is changed.
            ConfigError: the URL of the feed's database is not set, or cannot be used.
            DatabaseError: the pass ended early; the next one does the rest.
        """
        sync = PermissionSync(self._parts.database, self.settings.ingestion)
        return sync.run(self._tenant, self._write_collection, validate_feed(feed))

    def list_unreadable(self) -> list[UnreadableDocuments]:
        """Return the documents that nobody may read, by collection. Raises ConfigError, DatabaseError."""
        with self.sessions.write() as connection:
            return list_unreadable(connection, self._tenant.id, self._collection)

    def update_metadata(self, sources: str | Iterable[str], changes: Mapping[str, Any]) -> int:
        """Change metadata of documents, and return how many had other metadata.

        Nothing is loaded, parsed or embedded. The change holds until the source has other content or metadata.

        Args:
            sources: The documents; the name of a large file means its parts.
            changes: New values by key; None removes the key.

        Raises RequestError for values that cannot be stored, and for the key that decides who may read; DatabaseError.
        """
        return self._parts.ingest_pipeline.update_metadata(
            self._tenant, self._write_collection, [sources] if isinstance(sources, str) else list(sources), changes
        )

    def delete(self, sources: str | Iterable[str]) -> int:
        """Remove documents by source, with all their rows.

        Jobs that would ingest them again are cancelled. Returns the number of removed documents. Raises DatabaseError.
        """
        return self._parts.ingest_pipeline.delete(
            self._tenant, self._write_collection, [sources] if isinstance(sources, str) else list(sources)
        )

    def erase(
        self,
        *,
        subject: str | None = None,
        source: str | None = None,
        metadata: tuple[str, str] | None = None,
        preview: bool = False,
    ) -> ErasureReport:
        """Erase the stored data of a reader or of documents.

        All collections are included, and the erasure is recorded.

        Args:
            subject: Reader whose feedback and samples are erased.
            source: Documents by source: `*` is any text, `?` one character.
            metadata: Documents by key and value of their metadata.
            preview: Count only; nothing is changed.

        Raises RequestError unless exactly one selector is given, ConfigError without `database.worker_url`,
        DatabaseError.
        """
        selectors = [
            *([Selector.of_reader(subject)] if subject is not None else []),
            *([Selector.of_sources(source)] if source is not None else []),
            *([Selector.of_metadata(*metadata)] if metadata is not None else []),
        ]
        if len(selectors) != 1:
            raise RequestError(f"{len(selectors)} selectors are given; erase by one of subject, source and metadata")
        return self._erasures().erase(selectors[0], preview=preview)

    def erase_all(self, *, preview: bool = False) -> ErasureReport:
        """Erase the tenant, all but the audit log.

        Documents, jobs, statistics, feedback, measurements and keys are erased.

        Raises ConfigError without `database.worker_url`, or without `database.admin_url` if there is a vector index;
        IndexLocked while the indexes are maintained; DatabaseError.
        """
        if preview:
            return self._erasures().erase_tenant(preview=True)
        # An index that is built meanwhile would stay: no maintenance looks at a tenant that is gone.
        with self._parts.indexes.without_vector_indexes(self._tenant):
            return self._erasures().erase_tenant(preview=False)

    def _erasures(self) -> ErasureStore:
        parts = self._parts
        return ErasureStore(parts.database, self._tenant, keep_audit_months=parts.settings.worker.keep_audit_months)

    def sources(self) -> list[str]:
        """List the sources of the collection's documents, readable or not.

        Raises DatabaseError.
        """
        return list(self._parts.ingest_pipeline.list_sources(self._tenant, self._write_collection))
