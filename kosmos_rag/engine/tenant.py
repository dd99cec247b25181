"""One tenant as one reader sees it."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, Self

from kosmos_rag.answering.citation_check import check_citations, quote_status
from kosmos_rag.answering.stream import AnswerStream
from kosmos_rag.core.config import AuditSettings, Settings
from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.config.presets import changes as parse_changes
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.core.names import validate_name
from kosmos_rag.core.protocols import Message, Vectors, complete
from kosmos_rag.core.telemetry import usage
from kosmos_rag.core.types import (
    DEFAULT_COLLECTION,
    Answer,
    AnswerSentence,
    AuditKind,
    AuditOutcome,
    CitationReport,
    Context,
    ContextPassage,
    DocumentInfo,
    DocumentLines,
    DocumentPosition,
    DocumentSection,
    DocumentSort,
    ErasureReport,
    Feedback,
    Filter,
    IngestReport,
    PermissionReport,
    QuerySyntax,
    QuoteStatus,
    Rating,
    RatingReason,
    Rectangle,
    ResultOptions,
    SearchResult,
    SourceDocument,
    Turn,
)
from kosmos_rag.engine.access import TenantAccess
from kosmos_rag.engine.api_keys import KEY_SUBJECT, ApiKeys
from kosmos_rag.engine.audit import TenantAudit
from kosmos_rag.engine.collections import CollectionPipelines, TenantCollections
from kosmos_rag.engine.components import EngineComponents
from kosmos_rag.engine.departments import count_departments
from kosmos_rag.engine.events import TenantEvents
from kosmos_rag.engine.indexes import TenantIndexes
from kosmos_rag.engine.jobs import TenantJobs
from kosmos_rag.engine.query import EFFORTS, WATCHED, Effort, QueryRequest, audit_policy
from kosmos_rag.engine.sessions import TenantSessions
from kosmos_rag.engine.spaces import TenantSpaces
from kosmos_rag.engine.uploads import TenantUploads
from kosmos_rag.indexing.known_items import MIN_CHUNKS
from kosmos_rag.ingestion.document import document_id
from kosmos_rag.ingestion.permissions import PermissionSync, UnreadableDocuments, list_unreadable
from kosmos_rag.ingestion.pipeline import Progress
from kosmos_rag.ingestion.sources.spec import validate_feed
from kosmos_rag.parsing import media_types
from kosmos_rag.retrieval.filters import compile_filter
from kosmos_rag.retrieval.query import DEFAULT_RETRIEVERS, parse_query, parse_retriever_options
from kosmos_rag.retrieval.signals.apply import build_signal_rules
from kosmos_rag.retrieval.snapshot import read_routing
from kosmos_rag.storage.audit.feedback import FeedbackEntry, store_feedback
from kosmos_rag.storage.audit.log import AccessWithoutPassages, AuditContext, record_event
from kosmos_rag.storage.audit.partitions import PartitionRotation
from kosmos_rag.storage.erasure import ErasureStore, Selector
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.readable_documents import DocumentOutline, ReadableDocuments
from kosmos_rag.storage.tenants import TenantRef

_MAX_LINES = 10_000
_LAST_LINE = 2**31 - 1 - _MAX_LINES


class Tenant:
    """One tenant as one reader sees it, for all work with documents.

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
        *,
        read_your_writes: bool = False,
        is_watched: bool = False,
    ) -> None:
        self._parts = components
        self._read_your_writes = read_your_writes
        self._tenant = owner
        self._principals = principals
        self._collection = collection
        self._write_collection = collection or DEFAULT_COLLECTION
        self._reader = AuditContext(
            tenant=owner, principals=principals, subject=subject, collection=collection, is_watched=is_watched
        )

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self._tenant.name

    @property
    def id(self) -> uuid.UUID:
        """The tenant's id, which follows from its name."""
        return self._tenant.id

    @property
    def collection(self) -> str | None:
        """Name of the collection; None for all of them."""
        return self._collection

    @property
    def principals(self) -> tuple[str, ...]:
        """What the reader holds."""
        return self._principals

    @property
    def subject(self) -> str | None:
        """Id or name of the reader; None without one."""
        return self._reader.subject

    def with_collection(self, name: str) -> Self:
        """Return one collection of the tenant for the same reader. Raises RequestError on a malformed name."""
        return type(self)(
            self._parts,
            self._tenant,
            self._principals,
            validate_name("collection", name),
            self._reader.subject,
            read_your_writes=self._read_your_writes,
        )

    @property
    def embedding_model(self) -> str:
        """Name of the embedding model."""
        return self._parts.embedder.name

    @property
    def dimensions(self) -> int:
        """Length of the vectors of the embedding model."""
        return self._parts.embedder.dimensions

    @property
    def language_model(self) -> str | None:
        """Name of the language model, or None.

        The settings define what it is used for.
        """
        model = self._parts.language_model
        return None if model is None else model.name

    @property
    def history_turns(self) -> int:
        """Earlier turns that a question may refer to. Raises DatabaseError."""
        return self._pipelines().settings.rag.answer.history_turns

    def complete(self, prompt: str, *, max_tokens: int) -> str:
        """Return the language model's answer to a prompt.

        Raises ConfigError without a language model, and ModelError.
        """
        if self._parts.language_model is None:
            raise ConfigError("no language model is configured: set language_model.url and language_model.model")
        with self._parts.queries.charge(self._reader, usage.Quantity.INPUT_TOKENS):
            return complete(self._parts.language_model, prompt, max_tokens=max_tokens)

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
    def audited(self) -> bool:
        """Whether the audit log records what is read here.

        Raises DatabaseError.
        """
        return self._audit_policy(self._collection).enabled

    @property
    def settings(self) -> Settings:
        """The settings of the process."""
        return self._parts.settings

    @property
    def effective_settings(self) -> Settings:
        """The settings that questions of this scope are answered by: with the preset of the collection.

        Raises DatabaseError.
        """
        return self._pipelines().settings

    def parse_changes(self, name: str, changes: str | Path | Mapping[str, Any]) -> Preset:
        """Validate changes to the settings that questions of this scope are answered by.

        Raises ConfigError if they are invalid or change nothing, DatabaseError.

        Args:
            name: Name of the changes, for messages.
            changes: Path of a YAML file like that of a preset, or values by dotted key.
        """
        return parse_changes(name, changes, self.effective_settings, validate=build_signal_rules)

    @property
    def sessions(self) -> TenantSessions:
        """Transactions of the tenant, for statements of wings."""
        return TenantSessions(self._parts.database, self._tenant, self._principals)

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
        # Maintenance does so too; after a first load, the weights of the fusion are right without it.
        if report.chunks >= MIN_CHUNKS:
            self._parts.indexes.measure_known_items(self._tenant)
        return report

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
            sources: The documents.
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
        if not preview:
            self._parts.indexes.drop_vector_indexes(self._tenant)
        return self._erasures().erase_tenant(preview=preview)

    def _erasures(self) -> ErasureStore:
        parts = self._parts
        return ErasureStore(parts.database, self._tenant, keep_audit_months=parts.settings.worker.keep_audit_months)

    def sources(self) -> list[str]:
        """List the sources of the collection's documents, readable or not.

        Raises DatabaseError.
        """
        return list(self._parts.ingest_pipeline.list_sources(self._tenant, self._write_collection))

    def documents(
        self,
        *,
        ids: Iterable[uuid.UUID] | None = None,
        filter: Filter | None = None,  # noqa: A002
        sort: DocumentSort = "source",
        after: DocumentPosition | None = None,
        limit: int | None = None,
    ) -> list[DocumentInfo]:
        """List the documents that this reader may read.

        Raises RequestError for a malformed filter, an unknown order or a position of another order, DatabaseError.

        Args:
            ids: Only these documents; None for all.
            filter: Only documents that match; None for all.
            sort: By source, or by a number with the largest first; equal ones by source.
            after: Source and collection of the last document of the previous page, after the number that is sorted by
                (microseconds since 1970 of `updated_at`).
            limit: Documents of a page; None for all.
        """
        return self._documents.list_documents(
            ids=None if ids is None else list(ids),
            condition=None if filter is None else compile_filter(filter),
            sort=sort,
            after=after,
            limit=limit,
        )

    def count_documents(self, filter: Filter | None = None) -> int:  # noqa: A002
        """Count the documents that this reader may read.

        Args: filter: Only documents that match. Raises RequestError for a malformed one, DatabaseError.
        """
        condition = None if filter is None else compile_filter(filter)
        return self._documents.count_documents(condition)

    def last_changes(self) -> dict[str, str]:
        """Return what identifies the state of each collection, for this reader.

        If it is the same as before, `documents` lists the same. Raises DatabaseError.
        """
        return self._documents.read_last_changes()

    def department_totals(self) -> tuple[int, dict[str, int]]:
        """Count the documents that this reader may read, and chunks by department.

        The department is in the metadata or is the folder, as the settings of the collection say; else it is the one of
        the reader that may read the document, else `general`. Of all collections. Raises DatabaseError.
        """
        parts = self._parts
        key = parts.settings.rag.access.key
        documents, totals = self._documents.read_folder_totals(key=key)
        settings = {
            name: parts.pipelines.get(parts.database.app, self._tenant, name).settings.rag
            for name in {total.collection for total in totals}
        }
        return documents, count_departments(totals, settings.__getitem__)

    def document_ids(self, sources: Iterable[str]) -> list[uuid.UUID]:
        """Return the ids of documents with these sources in the collection.

        Whether there are such documents or not: an id follows from tenant, collection and source.
        """
        return [document_id(self._tenant.id, self._write_collection, source) for source in sources]

    def document_texts(self, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
        """Return whole documents by id, those that this reader may read.

        If an audit log is kept, it records the lines of each. Raises DatabaseError.
        """
        document_ids = list(ids)
        if not self.audited:
            return self._documents.read_texts_by_id(document_ids)
        texts: dict[uuid.UUID, str] = {}
        for identity in document_ids:
            parts = []
            first, last = 1, 1
            while first <= last and (lines := self.read_lines(identity, first=first, count=_MAX_LINES)) is not None:
                parts.append(lines.text)
                first, last = lines.line_end + 1, lines.total_lines
            if parts:
                texts[identity] = "\n".join(parts)
        return texts

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts as documents of this tenant are embedded.

        Returns an array of shape (texts, dimensions). Raises ModelUnavailable, ModelError.
        """
        with self._parts.queries.charge(self._reader, usage.Quantity.EMBEDDED_TOKENS):
            return self._parts.embedder.embed(texts)

    def embed_query(self, question: str) -> Sequence[float]:
        """Embed a question as `search` does. Raises ModelUnavailable, ModelError."""
        with self._parts.queries.charge(self._reader, usage.Quantity.EMBEDDED_TOKENS):
            vector: list[float] = self._parts.embedder.embed_query(question).tolist()
        return vector

    def texts(self) -> list[tuple[str, str]]:
        """Return source and text of each document that this reader may read.

        Sorted by source. Raises RequestError if an audit log is kept: the log records which passages a reader saw, not
        whole documents. Raises DatabaseError.
        """
        if self.audited:
            raise RequestError(
                "texts() returns whole documents, which the audit log cannot record; use search() or context(), "
                "or disable rag.audit.enabled for the collections"
            )
        return self._documents.read_texts()

    def read_lines(self, document_id: uuid.UUID, *, first: int = 1, count: int = 200) -> DocumentLines | None:
        """Return lines of a document, or None if this reader finds none.

        Use it to show the surroundings of a citation. The lines are in the audit log, if one is kept. Raises
        RequestError if the document has no such line, DatabaseError.

        Args:
            first: The first line, from 1.
            count: Number of lines, 10,000 at most.
        """
        if not 1 <= first <= _LAST_LINE or not 1 <= count <= _MAX_LINES:
            raise RequestError(
                f"{count} lines from line {first} requested; start at 1 or later and request 1 to {_MAX_LINES}"
            )
        lines = self._documents.read_lines(document_id, first=first, count=count)
        if lines is None:
            return None
        if first > lines.total_lines:
            raise RequestError(f"the document has {lines.total_lines} lines and no line {first}; request earlier ones")
        policy = self._audit_policy(lines.document.collection)
        if policy.enabled:
            record_event(self._parts.database.app, self._reader, lines, policy, self._pipelines().settings_hash)
        return lines

    def sections(self, document_id: uuid.UUID) -> list[DocumentSection]:
        """List the sections of a document, in its order.

        The result is empty where the reader may read none, or the document has no text. `read_lines` reads one. Raises
        DatabaseError.
        """
        return self._documents.read_sections(document_id)

    def outline(self, document_id: uuid.UUID) -> DocumentOutline | None:
        """Return who may read a document, its versions, and its chunks.

        The result is None if this reader finds none. Raises DatabaseError.
        """
        return self._documents.read_outline(document_id)

    def rectangles(
        self, document_id: uuid.UUID, start: int, end: int, *, version: int | None = None
    ) -> list[Rectangle]:
        """List the places of a span on the pages of a PDF.

        A line or a table each. The result is empty where this reader finds no such document, or it has no pages. Raises
        DatabaseError.

        Args:
            start: First character of the span, as a citation has it.
            end: The character after its last one.
            version: The version that the span is of; None for the current one. Empty where the document has another.
        """
        return self._documents.read_rectangles(document_id, (start, end), version)

    def read_original(self, document_id: uuid.UUID) -> bytes | None:
        """Return the file of a document.

        The result is None where this reader finds no such document, or `ingestion.keep_originals` did not keep its
        file. The call is in the audit log, if one is kept. Raises DatabaseError.
        """
        original = self._find_original(document_id)
        if original is None:
            return None
        source, data = original
        self.record_access(AuditKind.SEARCH, f"file of {source}", AuditOutcome.HITS)
        return data

    def render_page(self, document_id: uuid.UUID, page: int) -> bytes | None:
        """Render a page of a stored PDF file as a PNG.

        The result is None where `read_original` returns none, and for other formats. The call is in the audit log, if
        one is kept. Raises ParseError where the file has no such page, DatabaseError.

        Args:
            page: Number of the page, from 1.
        """
        info = next(iter(self.documents(ids=[document_id])), None)
        if info is None or info.media_type != media_types.PDF:
            return None
        if page < 1:
            raise RequestError(f"page {page} is requested; pages count from 1")

        def read() -> bytes | None:
            original = self._find_original(document_id)
            return None if original is None else original[1]

        picture = self._parts.page_images.render((self._tenant.id, document_id, info.version, page), read)
        if picture is not None:
            self.record_access(AuditKind.SEARCH, f"page {page} of {info.source}", AuditOutcome.HITS)
        return picture

    def _find_original(self, document_id: uuid.UUID) -> tuple[str, bytes] | None:
        return self._documents.read_original(document_id)

    def search(
        self,
        question: str | Sequence[str],
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002 — the word that callers expect
        *,
        syntax: QuerySyntax = "auto",
        cursor: str | None = None,
        group_by: Literal["document"] | None = None,
        group_size: int | None = None,
        facets: Sequence[str] = (),
        mmr: float | None = None,
        semantic_weight: float | None = None,
        keyword_weight: float | None = None,
        vector: Sequence[float] | None = None,
        today: date | None = None,
        effort: Effort = "low",
    ) -> SearchResult:
        """Return the best passages for a question, or for several.

        Several questions are searched one after another. Their hits are fused by rank, a passage that several found
        is one hit, and `activity` has what each question gave. Raises RequestError, EmbeddingSpaceMismatch,
        ModelUnavailable, DatabaseError.

        Args:
            question: The question, with the operators of docs/questions.md; or a list of 1 to 10 questions, without
                pages, groups, facets, mmr and vector.
            k: Number of passages, or of documents where they are grouped; None for `rag.retrieval.top_k`.
            filter: Conditions on documents.
            syntax: Whether signs are operators: `auto` in a question of operators and terms alone, `operators` in each
                question; `plain` reads quotes as text too.
            cursor: `*` for the first of several pages, `next_cursor` of a result for the next one; None for no pages.
            group_by: `document` for a hit a document, with its other passages in `inner_hits`.
            group_size: Passages of a group, the hit included; None for 3.
            facets: Fields whose values are counted over the documents of the ranking, docs/search.md.
            mmr: Weight of relevance, 0 to 1, in maximal marginal relevance; None for no reordering.
            semantic_weight: Weight of the dense retriever, 0 for none; None for `rag.retrieval.semantic_weight`.
            keyword_weight: Weight of the lexical retriever, 0 for none; None for `rag.retrieval.keyword_weight`.
            vector: Embedding of the question by the model of the documents; the question may then be empty, and only
                the dense retriever searches. None to embed the question.
            today: Reference date of `last week` in a question, and of validity; None for the day in UTC.
            effort: `high` fuses the hits of up to six searches that the language model plans, for one question without
                pages, groups, facets, mmr and vector; `low` is one search.
        """
        if effort not in EFFORTS:
            raise RequestError(f"effort is {effort!r}; give one of {', '.join(EFFORTS)}")
        if not isinstance(question, str) or effort == "high":
            if facets or any(option is not None for option in (cursor, group_by, group_size, mmr, vector)):
                raise RequestError("pages, groups, facets, mmr and vector are of one search; ask one, with effort low")
            if effort == "high" and not isinstance(question, str):
                raise RequestError("effort high plans the searches of one question; ask one question")
            weights = parse_retriever_options(semantic_weight, keyword_weight, None)
            several = QueryRequest(
                text=question if isinstance(question, str) else "",
                k=k,
                filter=filter,
                syntax=syntax,
                retrievers=weights,
                today=today,
                read_your_writes=self._read_your_writes,
            )
            if isinstance(question, str):
                return self._parts.queries.search_planned(self._reader, several)
            return self._parts.queries.search_several(self._reader, question, several)
        options = None
        if facets or any(option is not None for option in (cursor, group_by, group_size, mmr)):
            options = ResultOptions(
                cursor=cursor, group_by=group_by, group_size=group_size, facets=tuple(facets), mmr=mmr
            )
        retrievers = DEFAULT_RETRIEVERS
        if any(option is not None for option in (semantic_weight, keyword_weight, vector)):
            retrievers = parse_retriever_options(semantic_weight, keyword_weight, vector)
        request = QueryRequest(
            text=question,
            k=k,
            filter=filter,
            syntax=syntax,
            options=options,
            retrievers=retrievers,
            today=today,
            read_your_writes=self._read_your_writes,
        )
        return self._parts.queries.search(self._reader, request)

    def context(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002
        *,
        max_tokens: int | None = None,
        syntax: QuerySyntax = "auto",
    ) -> Context:
        """Return numbered, cited evidence for a question within a token budget.

        Raises what `search` raises.

        Args:
            k: Passages to search for; None for the setting.
            filter: Conditions on documents.
            max_tokens: Budget in tokens of the embedding model; None for the setting.
            syntax: Whether signs are operators; see `search`.
        """
        request = QueryRequest(
            text=question, k=k, filter=filter, syntax=syntax, read_your_writes=self._read_your_writes
        )
        return self._parts.queries.context(self._reader, request, max_tokens)

    def answer(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002
        *,
        max_tokens: int | None = None,
        syntax: QuerySyntax = "auto",
        history: Sequence[Turn] = (),
    ) -> Answer:
        """Answer from the evidence with a citation in each sentence, or refuse.

        It refuses if the evidence does not answer the question. Raises what `search` raises, and ModelError if a
        language model must write the answer and fails.

        Args:
            k: Passages to search for; None for the setting.
            filter: Conditions on documents.
            max_tokens: Budget of the context in tokens of the embedding model; None for the setting.
            syntax: Whether signs are operators; see `search`.
            history: Earlier turns of the conversation, oldest first; the last `rag.answer.history_turns` are used.
        """
        request = QueryRequest(
            text=question, k=k, filter=filter, syntax=syntax, read_your_writes=self._read_your_writes
        )
        return self._parts.queries.answer(self._reader, request, max_tokens, history)

    def stream_answer(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002
        *,
        max_tokens: int | None = None,
        syntax: QuerySyntax = "auto",
        history: Sequence[Turn] = (),
    ) -> AnswerStream:
        """Answer as `answer` does, as a stream.

        It gives the sources, then the text in pieces, and the whole answer at its end. The retrieval is in the audit
        log, if one is kept, before this returns. A refusal by the model is in it before the end is delivered. Raises
        what `search` raises.

        Args:
            k: Passages to search for; None for the setting.
            filter: Conditions on documents.
            max_tokens: Budget of the context in tokens of the embedding model; None for the setting.
            syntax: Whether signs are operators; see `search`.
            history: Earlier turns of the conversation, oldest first.
        """
        request = QueryRequest(
            text=question, k=k, filter=filter, syntax=syntax, read_your_writes=self._read_your_writes
        )
        return self._parts.queries.stream(self._reader, request, max_tokens, history)

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, as the embedding model does.

        All token budgets use this count.
        """
        return self._parts.embedder.tokenizer.count([text])[0]

    def build_prompt(self, context: Context) -> list[Message]:
        """Return the messages that answer a context's question, for a language model of your own.

        They are those of `rag.answer.template`, with passages fenced as data. `check_citations` checks what the model
        writes. Raises RequestError for a context without passages, ConfigError for a broken template.
        """
        return self._pipelines().answerer.build_prompt(context)

    def check_citations(self, text: str, context: Context | Sequence[ContextPassage]) -> CitationReport:
        """Check, sentence by sentence, a text that cites passages of a context.

        Raises ModelUnavailable.
        """
        passages = context.passages if isinstance(context, Context) else context
        with self._parts.queries.charge(self._reader, usage.Quantity.EMBEDDED_TOKENS):
            return check_citations(
                text,
                passages,
                embedder=self._parts.embedder,
                citation_format=self._pipelines().settings.rag.context.citation_format,
            )

    def check_quotes(self, quotes: Iterable[AnswerSentence]) -> list[QuoteStatus]:
        """Return whether each cited sentence is still in its document.

        The documents are read as this reader may read them now. Raises RequestError if a sentence differs from the
        cited quote, DatabaseError.
        """
        sentences = list(quotes)
        ids = {quote.citation.document_id for quote in sentences}
        texts = self._documents.read_texts_by_id(ids)
        return [
            quote_status(quote.citation, quote.text, texts.get(quote.citation.document_id, "")) for quote in sentences
        ]

    def feedback(
        self,
        rating: Rating | str,
        *,
        retrieval_id: uuid.UUID | None = None,
        question: str | None = None,
        chunk_id: uuid.UUID | None = None,
        comment: str | None = None,
        reason: RatingReason | str | None = None,
    ) -> Feedback:
        """Store the subject's rating of a search, a question or a passage.

        An earlier rating of the same object is replaced. Raises RequestError, NotFound, ConfigError, DatabaseError.

        Args:
            retrieval_id: `SearchResult.id` of the rated search.
            question: The rated question, where no search is named.
            chunk_id: The rated passage of the search; None for the whole result.
            comment: Free text.
            reason: Reason of a rating down; `not_covered`, that the documents do not answer, of any rating.
        """
        if rating not in list(Rating):
            raise RequestError(f"the rating is {str(rating)[:80]!r}; use {', '.join(Rating)}")
        if reason is not None and reason not in list(RatingReason):
            raise RequestError(f"the reason is {str(reason)[:80]!r}; use {', '.join(RatingReason)}")
        opinion = FeedbackEntry(
            rating=Rating(rating),
            retrieval_id=retrieval_id,
            question=question,
            chunk_id=chunk_id,
            comment=comment,
            reason=None if reason is None else RatingReason(reason),
        )
        return store_feedback(
            self._parts.database,
            self._reader,
            opinion,
            self._audit_policy(self._collection),
        )

    def record_access(self, kind: AuditKind, text: str, outcome: AuditOutcome, milliseconds: float = 0.0) -> None:
        """Write access to what has no passages to the audit log.

        It is a query on a described database, or the content of a stored file. Does nothing if no log is kept. Raises
        DatabaseError: the reader must not get the rows, or the bytes.

        Args:
            kind: `query` for SQL, `search` for a file.
            text: Name of the database and the SQL, or name of the file.
            outcome: `hits` if it ran, `refused` if not.
            milliseconds: Duration of the query.
        """
        policy = self._audit_policy(self._collection)
        if policy.enabled:
            access = AccessWithoutPassages(kind=kind, question=text, outcome=outcome, milliseconds=milliseconds)
            record_event(self._parts.database.app, self._reader, access, policy, self._pipelines().settings_hash)

    @property
    def _documents(self) -> ReadableDocuments:
        return ReadableDocuments(self._parts.database.app, self._tenant.id, self._principals, self._collection)

    def _pipelines(self) -> CollectionPipelines:
        """Return the pipelines of the collection by its preset.

        For all collections they are those of the process.
        """
        return self._parts.pipelines.get(self._parts.database.app, self._tenant, self._collection)

    def _search_unrecorded(self, text: str) -> None:
        """Search as this reader, without audit log, cache, samples and metrics."""
        search = self._pipelines().search.for_background(self._parts.database.app)
        query = parse_query(
            text,
            tenant=self._tenant,
            principals=self._principals,
            collection=self._collection,
            syntax="plain",
            max_chars=len(text),
        )
        search.search(query)

    def _audit_policy(self, collection: str | None) -> AuditSettings:
        """Return the audit settings of a collection, or the strictest.

        Without a collection they are the strictest of all. Raises DatabaseError.
        """
        if self._reader.is_watched:
            return WATCHED
        routing = read_routing(self._parts.database.app, self._tenant, collection)
        return audit_policy(self._parts.settings, routing.audit)
