"""One tenant as one reader sees it."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kosmos_rag.answering.citation_check import check_citations, quote_status
from kosmos_rag.answering.stream import AnswerStream
from kosmos_rag.core.config import AuditSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import (
    DEFAULT_COLLECTION,
    Answer,
    AnswerSentence,
    CitationReport,
    Context,
    DocumentInfo,
    DocumentLines,
    ErasureReport,
    Feedback,
    Filter,
    IngestReport,
    PermissionReport,
    QuoteStatus,
    Rating,
    SearchResult,
    SourceDocument,
    Turn,
)
from kosmos_rag.engine.audit import TenantAudit
from kosmos_rag.engine.collections import CollectionPipelines, TenantCollections
from kosmos_rag.engine.components import EngineComponents
from kosmos_rag.engine.departments import count_departments
from kosmos_rag.engine.experiments import TenantExperiments
from kosmos_rag.engine.indexes import TenantIndexes
from kosmos_rag.engine.jobs import TenantJobs
from kosmos_rag.engine.query import audit_policy
from kosmos_rag.engine.spaces import TenantSpaces
from kosmos_rag.ingestion.permissions import PermissionSync
from kosmos_rag.ingestion.pipeline import Progress
from kosmos_rag.ingestion.sources.spec import validate_feed
from kosmos_rag.retrieval.snapshot import read_routing
from kosmos_rag.storage.audit.feedback import FeedbackEntry, store_feedback
from kosmos_rag.storage.audit.log import AuditContext, record_event
from kosmos_rag.storage.audit.partitions import PartitionRotation
from kosmos_rag.storage.documents import (
    list_documents,
    read_documents,
    read_folder_totals,
    read_last_changes,
    read_lines,
    read_texts,
    read_totals,
)
from kosmos_rag.storage.erasure import ErasureStore, by_metadata, by_source, by_subject
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.tenants import TenantRef

_MAX_LINES = 10_000
_LAST_LINE = 2**31 - 1 - _MAX_LINES


class Tenant:
    """One tenant as one reader sees it: everything that is done with documents goes through here.

    Reading shows what the reader's principals may read, in one collection or in all. Writing is the tenant's:
    `ingest`, `sync_permissions`, `delete` and `sources` reach every document of one collection (`default` where none
    is named), readable or not: give a scope only to callers that may write.
    """

    def __init__(
        self,
        components: EngineComponents,
        owner: TenantRef,
        principals: tuple[str, ...],
        collection: str | None,
        subject: str | None = None,
    ) -> None:
        self._parts = components
        self._tenant = owner
        self._principals = principals
        self._collection = collection
        self._written = collection or DEFAULT_COLLECTION
        self._reader = AuditContext(tenant=owner, principals=principals, subject=subject, collection=collection)

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self._tenant.name

    @property
    def id(self) -> uuid.UUID:
        """The tenant's id, which follows from its name."""
        return self._tenant.id

    @property
    def language_model(self) -> str | None:
        """Name of the language model, where there is one: the settings say what it is asked."""
        model = self._parts.language_model
        return None if model is None else model.name

    @property
    def collections(self) -> TenantCollections:
        """The tenant's collections, and the presets that they go by."""
        return TenantCollections(self._parts.collections, self._tenant, self._principals)

    @property
    def audit(self) -> TenantAudit:
        """The log of what was asked of the tenant and given out, by whomever: for its auditors."""
        parts = self._parts
        months = PartitionRotation(parts.database, keep_months=parts.settings.worker.keep_audit_months)
        return TenantAudit(parts.database, self._tenant, months)

    @property
    def audited(self) -> bool:
        """Whether a log is kept of any of what is read here. Raises DatabaseError."""
        return self._audit_policy(self._collection).enabled

    @property
    def experiments(self) -> TenantExperiments:
        """The tenant's experiments, of questions like those of this scope: for those who run them."""
        return TenantExperiments(self._parts.database, self._tenant, self._collection, self._pipelines().settings)

    @property
    def jobs(self) -> TenantJobs:
        """The tenant's jobs: ingestion by workers and not here. Raises ConfigError without `database.worker_url`."""
        parts = self._parts
        queue = Queue.open(parts.database, parts.settings.worker)
        return TenantJobs(parts.database, parts.settings, queue, self._tenant, self._written)

    @property
    def indexes(self) -> TenantIndexes:
        """The tenant's indexes."""
        return TenantIndexes(self._parts.indexes, self._tenant)

    @property
    def spaces(self) -> TenantSpaces:
        """The spaces that the tenant's vectors live in, one for each model."""
        return TenantSpaces(
            self._parts.database, self._parts.reembedding, self._parts.reembedding_factory, self._tenant
        )

    def ingest(
        self,
        items: SourceDocument | str | Path | Iterable[SourceDocument | str | Path],
        *,
        prune: bool = True,
        on_progress: Progress | None = None,
    ) -> IngestReport:
        """Ingest files, folders and documents; unchanged ones are passed over.

        A folder is mirrored: with `prune`, documents whose file has gone from it are removed, except where the folder
        could not be read or is empty. A document that fails is in the report and does not stop the others.
        Raises ConfigError, ModelError, DatabaseError.
        """
        several = [items] if isinstance(items, str | Path | SourceDocument) else items
        return self._parts.ingest_pipeline.ingest(
            self._tenant,
            self._written,
            [Path(item) if isinstance(item, str) else item for item in several],
            prune=prune,
            on_progress=on_progress,
        )

    def sync_permissions(self, feed: Mapping[str, Any]) -> PermissionReport:
        """Bring the readers of documents up to a permission feed; nothing is parsed or embedded.

        Args:
            feed: spec of the feed, as docs/permissions.md describes it. It is complete: a document of an earlier pass
                that it no longer names is readable by nobody.

        Raises:
            RequestError: the spec is malformed, or another feed names one of the documents.
            SourceError: the feed is malformed or cannot be read; nothing is changed.
            ConfigError: the URL of the feed's database is not set, or cannot be used.
            DatabaseError: the pass ended early; the next one does the rest.
        """
        return PermissionSync(self._parts.database).run(self._tenant, self._written, validate_feed(feed))

    def delete(self, sources: str | Iterable[str]) -> int:
        """Remove documents by source, with every row of theirs. Returns how many there were. Raises DatabaseError."""
        return self._parts.ingest_pipeline.delete(
            self._tenant, self._written, [sources] if isinstance(sources, str) else list(sources)
        )

    def erase(
        self,
        *,
        subject: str | None = None,
        source: str | None = None,
        metadata: tuple[str, str] | None = None,
        preview: bool = False,
    ) -> ErasureReport:
        """Erase what is stored about a reader or of documents, in all collections, and record it.

        Args:
            subject: Reader whose feedback and samples are erased.
            source: Documents by source: `*` is any text, `?` one character.
            metadata: Documents by key and value of their metadata.
            preview: Count only; nothing is changed.

        Raises RequestError unless exactly one selector is given, ConfigError without `database.worker_url`,
        DatabaseError.
        """
        selectors = [
            *([by_subject(subject)] if subject is not None else []),
            *([by_source(source)] if source is not None else []),
            *([by_metadata(*metadata)] if metadata is not None else []),
        ]
        if len(selectors) != 1:
            raise RequestError(f"{len(selectors)} selectors are given; erase by one of subject, source and metadata")
        return self._erasures().erase(selectors[0], preview=preview)

    def erase_all(self, *, preview: bool = False) -> ErasureReport:
        """Erase the tenant: documents, jobs, statistics, feedback, measurements, keys; all but the audit log.

        Raises ConfigError without `database.worker_url`, or without `database.admin_url` if there is a vector index;
        IndexLocked while the indexes are maintained; DatabaseError.
        """
        if not preview:
            self._parts.indexes.drop_vector_indexes(self._tenant)
        return self._erasures().erase_tenant(preview=preview)

    def _erasures(self) -> ErasureStore:
        parts = self._parts
        return ErasureStore(parts.database, self._tenant, keep_audit_months=parts.settings.worker.keep_audit_months)

    def sources(self) -> list[str]:
        """List the sources of all documents of the collection, readable or not. Raises DatabaseError."""
        return list(self._parts.ingest_pipeline.list_sources(self._tenant, self._written))

    def documents(
        self,
        *,
        ids: Iterable[uuid.UUID] | None = None,
        after: tuple[str, str] | None = None,
        limit: int | None = None,
    ) -> list[DocumentInfo]:
        """List the documents that this reader may read, by source: all, or those of these ids.

        A page has `limit` of them; `after` is source and collection of the last one before it. Raises DatabaseError.
        """
        return list_documents(
            self._parts.database.app,
            self._tenant.id,
            self._principals,
            self._collection,
            ids=None if ids is None else list(ids),
            after=after,
            limit=limit,
        )

    def last_changes(self) -> dict[str, int]:
        """Return the number of the last change of what this reader may read, by collection.

        Equal means that `documents` lists the same as before. Raises DatabaseError.
        """
        return read_last_changes(self._parts.database.app, self._tenant.id, self._principals, self._collection)

    def totals(self) -> tuple[int, dict[tuple[str, ...], int]]:
        """Return how many documents this reader may read, and how many chunks by which of its principals may.

        Of all collections. Raises DatabaseError.
        """
        return read_totals(self._parts.database.app, self._tenant.id, self._principals)

    def department_totals(self) -> tuple[int, dict[str, int]]:
        """Count the documents that this reader may read, and their chunks by department.

        The department is in the metadata or is the folder, as the settings of the collection say; else it is the one of
        the reader that may read the document, else `general`. Of all collections. Raises DatabaseError.
        """
        parts = self._parts
        key = parts.settings.rag.access.key
        documents, totals = read_folder_totals(parts.database.app, self._tenant.id, self._principals, key=key)
        settings = {
            name: parts.pipelines.get(parts.database.app, self._tenant, name).settings.rag
            for name in {total.collection for total in totals}
        }
        return documents, count_departments(totals, settings.__getitem__)

    def texts(self) -> list[tuple[str, str]]:
        """Return source and text of each document that this reader may read, by source.

        Raises RequestError where an audit log is kept: it says who saw which passages, and knows no whole documents.
        Raises DatabaseError.
        """
        if self.audited:
            raise RequestError(
                "texts() gives out whole documents, which the audit log has no record of; use search() or context(), "
                "or turn rag.audit.enabled off for what is read"
            )
        return read_texts(self._parts.database.app, self._tenant.id, self._principals, self._collection)

    def read_lines(self, document_id: uuid.UUID, *, first: int = 1, count: int = 200) -> DocumentLines | None:
        """Return `count` lines of a document from the `first` on; None where there is none that this reader may read.

        For what stands around a citation. At most 10,000 lines at once; they are in the log, where one is kept. Raises
        RequestError where the document has no such line, DatabaseError.
        """
        if not 1 <= first <= _LAST_LINE or not 1 <= count <= _MAX_LINES:
            raise RequestError(f"{count} lines from line {first} are asked for; begin at 1, take 1 to {_MAX_LINES}")
        app = self._parts.database.app
        found = read_lines(
            app, self._tenant.id, self._principals, self._collection, document_id, first=first, count=count
        )
        if found is None:
            return None
        if first > found.total_lines:
            raise RequestError(f"the document has {found.total_lines} lines, and none of number {first}; ask for those")
        policy = self._audit_policy(found.document.collection)
        if policy.enabled:
            record_event(app, self._reader, found, policy, self._pipelines().settings_hash)
        return found

    def search(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002 — the word that callers expect
    ) -> SearchResult:
        """Return the best passages for a question, with the account of how they were found.

        Raises RequestError, EmbeddingSpaceMismatch, ModelUnavailable, DatabaseError.
        """
        return self._parts.queries.search(self._reader, question, k, filter)

    def context(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002
        *,
        max_tokens: int | None = None,
    ) -> Context:
        """Return numbered, cited evidence for a question within a token budget. Raises what `search` raises."""
        return self._parts.queries.context(self._reader, question, k, filter, max_tokens)

    def answer(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002
        *,
        max_tokens: int | None = None,
        history: Sequence[Turn] = (),
    ) -> Answer:
        """Answer from the evidence, each sentence cited, or refuse where it does not carry the question.

        `history` is the conversation that went before, the last turn last; `rag.answer.history_turns` of it are looked
        at. Raises what `search` raises, and ModelError where a language model is to write and fails.
        """
        return self._parts.queries.answer(self._reader, question, k, filter, max_tokens, history)

    def stream_answer(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002
        *,
        max_tokens: int | None = None,
        history: Sequence[Turn] = (),
    ) -> AnswerStream:
        """Do as `answer`, and return it as it comes: its sources, its text piece by piece, and the whole at the end.

        What was retrieved is in the log, where one is kept, before this returns, and where the model then refuses, that
        is too, before the end is given out. Raises what `search` raises.
        """
        return self._parts.queries.stream(self._reader, question, k, filter, max_tokens, history)

    def count_tokens(self, text: str) -> int:
        """Return how many tokens of the embedding model a text has: what budgets are counted in."""
        return self._parts.embedder.tokenizer.count([text])[0]

    def check_citations(self, text: str, context: Context) -> CitationReport:
        """Check a text that cites the passages of a context, sentence by sentence. Raises ModelUnavailable."""
        return check_citations(
            text,
            context.passages,
            embedder=self._parts.embedder,
            citation_format=self._pipelines().settings.rag.context.citation_format,
        )

    def check_quotes(self, quotes: Iterable[AnswerSentence]) -> list[QuoteStatus]:
        """Tell of each cited sentence whether it still stands in its document, as this reader may read it now.

        Raises RequestError where a sentence is not the one that was cited, DatabaseError.
        """
        asked = list(quotes)
        ids = {quote.citation.document_id for quote in asked}
        texts = read_documents(self._parts.database.app, self._tenant.id, self._principals, ids)
        return [quote_status(quote.citation, quote.text, texts.get(quote.citation.document_id, "")) for quote in asked]

    def feedback(
        self,
        rating: Rating | str,
        *,
        retrieval_id: uuid.UUID | None = None,
        question: str | None = None,
        chunk_id: uuid.UUID | None = None,
        comment: str | None = None,
    ) -> Feedback:
        """Keep what the subject thinks of a retrieval (`SearchResult.id`) or a question, or of one passage of it.

        What the subject said of the same before is replaced. Raises RequestError, NotFound, ConfigError, DatabaseError.
        """
        if rating not in list(Rating):
            raise RequestError(f"the rating is {str(rating)[:80]!r}; use {', '.join(Rating)}")
        opinion = FeedbackEntry(
            rating=Rating(rating), retrieval_id=retrieval_id, question=question, chunk_id=chunk_id, comment=comment
        )
        return store_feedback(
            self._parts.database,
            self._reader,
            opinion,
            self._audit_policy(self._collection),
        )

    def _pipelines(self) -> CollectionPipelines:
        """Return the pipelines of the collection by its preset; those of the process for all collections."""
        return self._parts.pipelines.get(self._parts.database.app, self._tenant, self._collection)

    def _audit_policy(self, collection: str | None) -> AuditSettings:
        """Return the audit settings of a collection, or the strictest of all. Raises DatabaseError."""
        routing = read_routing(self._parts.database.app, self._tenant, collection)
        return audit_policy(self._parts.settings, routing.audit)
