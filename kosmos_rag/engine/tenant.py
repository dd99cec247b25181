"""One tenant as one reader sees it."""

from kosmos_rag.core.telemetry import usage
from kosmos_rag.engine.access import TenantAccess
from kosmos_rag.engine.api_keys import KEY_SUBJECT, ApiKeys
from kosmos_rag.engine.audit import TenantAudit
from kosmos_rag.engine.collections import TenantCollections
from kosmos_rag.engine.events import TenantEvents
from kosmos_rag.engine.indexes import TenantIndexes
from kosmos_rag.engine.jobs import TenantJobs
from kosmos_rag.engine.spaces import TenantSpaces
from kosmos_rag.engine.tenant_questions import QuestionAnswering
from kosmos_rag.engine.tenant_reading import DocumentReading
from kosmos_rag.engine.tenant_writing import DocumentWriting
from kosmos_rag.engine.uploads import TenantUploads
from kosmos_rag.retrieval.query import QueryRequest, parse_query
from kosmos_rag.storage.audit.partitions import PartitionRotation
from kosmos_rag.storage.queue.queue import Queue


class Tenant(DocumentReading, DocumentWriting, QuestionAnswering):
    """One tenant as one reader sees it, for all work with documents.

    Reading shows what the reader's principals may read, in one collection or in all. Writing is the tenant's:
    `ingest`, `sync_permissions`, `delete` and `sources` reach every document of one collection (`default` where none
    is named), readable or not: give a scope only to callers that may write.
    """

    @property
    def collections(self) -> TenantCollections:
        """The tenant's collections and their presets."""
        return TenantCollections(self._parts.collections, self._tenant, self._principals)

    @property
    def audit(self) -> TenantAudit:
        """The audit log of the tenant, for its auditors."""
        parts = self._parts
        months = PartitionRotation(parts.database, keep_months=parts.settings.worker.keep_audit_months)
        return TenantAudit(parts.database, self._tenant, months)

    @property
    def jobs(self) -> TenantJobs:
        """The tenant's jobs, which workers run.

        Raises ConfigError without `database.worker_url`.
        """
        parts = self._parts
        queue = Queue.open(parts.database, parts.settings.worker)
        # A key is charged for its uploads; the name of a person stays out of the queue.
        subject = self._reader.subject if (self._reader.subject or "").startswith(KEY_SUBJECT) else None
        return TenantJobs(parts.database, parts.settings, queue, self._tenant, self._write_collection, subject=subject)

    @property
    def events(self) -> TenantEvents:
        """Events of documents and sources, of all readers and collections."""
        return TenantEvents(self.sessions, self._tenant)

    @property
    def access(self) -> TenantAccess:
        """Who may read which document, of all readers and collections."""
        parts = self._parts
        return TenantAccess(
            self.sessions,
            self._tenant,
            self.api_keys,
            lambda name: parts.pipelines.get(parts.database.app, self._tenant, name).settings.rag,
        )

    @property
    def uploads(self) -> TenantUploads:
        """Uploaded bytes, whose documents go into the collection."""

        def admit() -> None:
            with self._parts.queries.charge(self._reader, usage.Quantity.DOCUMENTS):
                pass

        return TenantUploads(self._parts.database, self._tenant, lambda: self.jobs, admit)

    @property
    def api_keys(self) -> ApiKeys:
        """The API keys of the tenant, for its administrators."""
        return ApiKeys(self._parts.database, self._tenant)

    @property
    def indexes(self) -> TenantIndexes:
        """The tenant's indexes."""
        return TenantIndexes(self._parts.database, self._parts.indexes, self._reader, self._search_unrecorded)

    @property
    def spaces(self) -> TenantSpaces:
        """The spaces that the tenant's vectors live in, one for each model."""
        return TenantSpaces(
            self._parts.database, self._parts.reembedding, self._parts.reembedding_factory, self._tenant
        )

    def _search_unrecorded(self, text: str) -> None:
        """Search as this reader, without audit log, cache, samples and metrics."""
        search = self._pipelines().search.for_background(self._parts.database.app)
        query = parse_query(QueryRequest(text=text, syntax="plain"), self._reader, max_chars=len(text))
        search.search(query)
