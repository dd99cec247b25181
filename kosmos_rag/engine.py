"""The composition root: settings in, a working engine out. The only place that knows which adapter fills which port."""

import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from kosmos_rag.answering.answerer import answer
from kosmos_rag.answering.checking import check_citations
from kosmos_rag.config import Settings
from kosmos_rag.context.assemble import assemble
from kosmos_rag.embedding import SentenceTransformerEmbedder, configured
from kosmos_rag.errors import RequestError
from kosmos_rag.indexing.lifecycle import Indexes
from kosmos_rag.ingestion.pipeline import Ingestor, Progress
from kosmos_rag.jobs.queue import Queue
from kosmos_rag.jobs.tenant_jobs import TenantJobs
from kosmos_rag.language_model.chat import ChatModel
from kosmos_rag.parts import Parts, Shape
from kosmos_rag.ports import Embedder, LanguageModel, Reranker
from kosmos_rag.presets import Collections, PerCollection, TenantCollections
from kosmos_rag.ranking.cross_encoder import CrossEncoderReranker
from kosmos_rag.records import (
    DEFAULT_COLLECTION,
    EVERYONE,
    Answer,
    CitationReport,
    Context,
    DocumentInfo,
    Filter,
    IndexInfo,
    IngestReport,
    Retrieval,
    SourceDocument,
    SpaceInfo,
    SpaceQuality,
    are_names,
)
from kosmos_rag.reembedding.by_ray import fill_by_ray
from kosmos_rag.reembedding.moving import Progress as EmbedProgress
from kosmos_rag.reembedding.moving import Reembedding
from kosmos_rag.reembedding.quality import read_questions
from kosmos_rag.retrieval.retriever import Retriever
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.reading import list_documents, read_spans, read_texts
from kosmos_rag.storage.tenancy import Tenant, tenant, well_formed


class Engine:
    """A retrieval engine over one database. Thread-safe; close it, or use it as a context manager.

    with Engine.open("rag-config.yaml") as engine:
        acme = engine.tenant("acme")
        acme.ingest(["handbook/"])
        print(acme.context("How many days of leave do I have?").text)
    """

    def __init__(
        self,
        settings: Settings,
        *,
        embedder: Embedder | None = None,
        next_embedder: Embedder | None = None,
        reranker: Reranker | None = None,
        language_model: LanguageModel | None = None,
    ) -> None:
        """Compose an engine. Models and database are opened on first use; the embedded server starts now.

        `embedder`, `next_embedder`, `reranker` and `language_model` replace what the settings name: any object with the
        methods of the port. Raises ConfigError, DatabaseUnavailable, DatabaseNotReady.
        """
        self.settings = settings
        self._embedder = embedder or SentenceTransformerEmbedder(settings.rag.embedding, settings.models)
        self._embedders = configured(settings, self._embedder, next_embedder)
        # The same once more, for the processes that embed in bulk: they open their own.
        self._reembedding_again = partial(_reembedding_of, settings, embedder, next_embedder)
        self._reranker = reranker
        if reranker is None and settings.rag.reranking.enabled:
            self._reranker = CrossEncoderReranker(settings.rag.reranking, settings.models)
        self._chat = ChatModel(settings.language_model) if settings.language_model.url and not language_model else None
        self._database = Database(settings.database)
        try:
            self._ingestor = Ingestor(self._database, self._embedders, settings)
            self._indexes = Indexes(self._database, self._embedders, settings)
            self._reembedding = Reembedding(self._database, self._embedders, self._indexes, settings)
            self._retriever = Retriever(
                self._database, self._embedders, self._reranker, language_model or self._chat, settings
            )
            self._collections = Collections(self._database, settings)
            plain = Shape(settings=settings, ingestor=self._ingestor, retriever=self._retriever)
            self._shapes = PerCollection(plain, settings, self._shape_under)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, config: Settings | str | Path | None = None) -> Self:
        """Open an engine from settings, from a file, or from where `Settings.load` looks for one.

        Raises ConfigError, DatabaseUnavailable, DatabaseNotReady.
        """
        return cls(config if isinstance(config, Settings) else Settings.load(config))

    def tenant(
        self, name: str, *, principals: Sequence[str] = (EVERYONE,), collection: str | None = None
    ) -> "TenantScope":
        """Return the scope of a tenant, or of one collection of it, for a reader who holds these principals.

        Raises RequestError on a malformed name, and on principals that are not a sequence of names.
        """
        if not are_names(principals):
            raise RequestError(f"principals are {principals!r}; give a list of names, ['finance']")
        if collection is not None:
            well_formed("collection", collection)
        return TenantScope(self, tenant(name), tuple(principals), collection)

    @property
    def parts(self) -> Parts:
        """What workers of ours work with, beyond what the scope of a tenant offers."""
        return Parts(
            database=self._database,
            ingestor=self._ingestor,
            ingestor_of=lambda owner, collection: self._shapes.of(self._database.worker, owner, collection).ingestor,
            indexes=self._indexes,
        )

    def _shape_under(self, settings: Settings, version: str) -> Shape:
        return Shape(
            settings=settings,
            ingestor=Ingestor(self._database, self._embedders, settings),
            retriever=self._retriever.under(settings, version),
        )

    def warm_up(self) -> None:
        """Load the models now and not with the first question. Raises ModelUnavailable for the embedding model."""
        self._retriever.warm_up()

    def close(self) -> None:
        """Close the connections. The embedded server stops with the last process that uses it."""
        self._database.close()
        if self._chat is not None:
            self._chat.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TenantScope:
    """One tenant as one reader sees it: everything that is done with documents goes through here.

    Reading shows what the reader's principals may read, in one collection or in all. Writing is the tenant's:
    `ingest`, `delete` and `sources` reach every document of one collection (`default` where none is named), whoever
    may read it, so give a scope to those only who may write.
    """

    def __init__(self, engine: Engine, owner: Tenant, principals: tuple[str, ...], collection: str | None) -> None:
        self._engine = engine
        self._tenant = owner
        self._principals = principals
        self._collection = collection
        self._written = collection or DEFAULT_COLLECTION

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self._tenant.name

    @property
    def id(self) -> uuid.UUID:
        """The tenant's id, which follows from its name."""
        return self._tenant.id

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
        ingestor = self._engine.parts.ingestor_of(self._tenant, self._written)
        return ingestor.run(
            self._tenant,
            self._written,
            [Path(item) if isinstance(item, str) else item for item in several],
            prune=prune,
            on_progress=on_progress,
        )

    def retrieve(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002 — the word that callers expect
    ) -> Retrieval:
        """Return the best passages for a question, with the account of how they were found.

        Raises RequestError, SpaceMismatch, ModelUnavailable, DatabaseError.
        """
        return self._retrieve(self._shape(), question, k, filter)

    def context(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002
        *,
        max_tokens: int | None = None,
    ) -> Context:
        """Return numbered, cited evidence for a question within a token budget. Raises what `retrieve` raises."""
        engine = self._engine
        shape = self._shape()
        return assemble(
            self._retrieve(shape, question, k, filter),
            tokenizer=engine._embedder.tokenizer,  # noqa: SLF001
            settings=shape.settings.rag.context,
            read_spans=lambda spans: read_spans(engine._database.app, self._tenant.id, self._principals, spans),  # noqa: SLF001
            max_tokens=max_tokens,
        )

    def answer(
        self,
        question: str,
        k: int | None = None,
        filter: Filter | None = None,  # noqa: A002
        *,
        max_tokens: int | None = None,
    ) -> Answer:
        """Answer by sentences of the evidence, each cited, or refuse where it does not carry the question.

        Raises what `retrieve` raises.
        """
        return answer(
            self.context(question, k, filter, max_tokens=max_tokens),
            embedder=self._engine._embedder,  # noqa: SLF001
            settings=self._shape().settings.rag.answer,
        )

    def check_citations(self, text: str, context: Context) -> CitationReport:
        """Check a text that cites the passages of a context, sentence by sentence. Raises ModelUnavailable."""
        return check_citations(
            text,
            context.passages,
            embedder=self._engine._embedder,  # noqa: SLF001
            citation_format=self._shape().settings.rag.context.citation_format,
        )

    def _shape(self) -> Shape:
        """Return what goes by the settings of the collection that is read; those of the tenant for all of them."""
        return self._engine._shapes.of(self._engine._database.app, self._tenant, self._collection)  # noqa: SLF001 — a scope is its engine seen as one tenant

    def _retrieve(self, shape: Shape, question: str, k: int | None, filter: Filter | None) -> Retrieval:  # noqa: A002
        return shape.retriever.retrieve(
            self._tenant, self._principals, question, k=k, filter=filter, collection=self._collection
        )

    @property
    def collections(self) -> TenantCollections:
        """The tenant's collections, and the presets that they go by."""
        return TenantCollections(self._engine._collections, self._engine._ingestor, self._tenant)  # noqa: SLF001

    def documents(self) -> list[DocumentInfo]:
        """List the documents that this reader may read, by source. Raises DatabaseError."""
        return list_documents(
            self._engine._database.app,  # noqa: SLF001
            self._tenant.id,
            self._principals,
            self._collection,
        )

    def texts(self) -> list[tuple[str, str]]:
        """Return source and text of each document that this reader may read, by source. Raises DatabaseError."""
        return read_texts(
            self._engine._database.app,  # noqa: SLF001
            self._tenant.id,
            self._principals,
            self._collection,
        )

    def sources(self) -> list[str]:
        """List the sources of all documents of the collection, whoever may read them. Raises DatabaseError."""
        return list(self._engine._ingestor.stored(self._tenant, self._written))  # noqa: SLF001

    @property
    def jobs(self) -> TenantJobs:
        """The tenant's jobs: ingestion by workers and not here. Raises ConfigError without `database.worker_url`."""
        engine = self._engine
        queue = Queue.open(engine._database, engine.settings.worker)  # noqa: SLF001
        return TenantJobs(engine._database, engine.settings, queue, self._tenant, self._written)  # noqa: SLF001

    def delete(self, sources: str | Iterable[str]) -> int:
        """Remove documents by source, with every row of theirs. Returns how many there were. Raises DatabaseError."""
        return self._engine._ingestor.delete(  # noqa: SLF001
            self._tenant, self._written, [sources] if isinstance(sources, str) else list(sources)
        )

    def index_status(self) -> list[IndexInfo]:
        """Return the tenant's indexes, how they are, and what is due. Raises DatabaseError."""
        return self._engine._indexes.status(self._tenant)  # noqa: SLF001

    def index_build(self, on_progress: Callable[[str], None] | None = None) -> list[IndexInfo]:
        """Build what is due: safe at any time, beside questions and ingestion.

        Raises IndexesBusy while another process does so, ConfigError without `database.admin_url` where a vector index
        is due, DatabaseError.
        """
        return self._engine._indexes.build(self._tenant, on_progress or _silent)  # noqa: SLF001

    def index_tune(self, on_progress: Callable[[str], None] | None = None) -> list[IndexInfo]:
        """Measure the vector index and search it as far as the recall target asks. Raises what `index_build` raises."""
        return self._engine._indexes.tune(self._tenant, on_progress or _silent)  # noqa: SLF001

    def index_rebuild(self, on_progress: Callable[[str], None] | None = None) -> list[IndexInfo]:
        """Build all indexes again; the old ones serve until the new are ready. Raises what `index_build` raises."""
        return self._engine._indexes.rebuild(self._tenant, on_progress or _silent)  # noqa: SLF001

    def embed_status(self) -> list[SpaceInfo]:
        """Return the tenant's embedding spaces, the live one first, and how far each has come. Raises DatabaseError."""
        return self._engine._reembedding.status(self._tenant)  # noqa: SLF001

    def embed_start(
        self,
        *,
        chunks_per_second: float | None = None,
        engine: Literal["local", "ray"] = "local",
        on_progress: EmbedProgress | None = None,
    ) -> list[SpaceInfo]:
        """Embed all chunks by the other one of the two models that are configured, beside the live space.

        Safe at any time, beside questions and ingestion; interrupted, it goes on when it is called again. `ray` lets
        the workers of a Ray cluster do it. Raises RequestError for a tenant without documents, ConfigError where there
        is no other model or no Ray, ModelError, IndexesBusy, DatabaseError.
        """
        again = self._engine._reembedding_again  # noqa: SLF001
        return self._engine._reembedding.start(  # noqa: SLF001
            self._tenant,
            chunks_per_second=chunks_per_second,
            parts=partial(fill_by_ray, again, self._tenant) if engine == "ray" else None,
            on_progress=on_progress or _silent,
        )

    def embed_step(self, limit: int) -> int:
        """Embed up to `limit` of the chunks that a space lacks, for those who share the work out among others.

        Returns how many; 0 where none is missing. Raises ModelError, DatabaseError.
        """
        return self._engine._reembedding.step(self._tenant, limit)  # noqa: SLF001

    def embed_switch(
        self,
        *,
        questions: str | Path | None = None,
        force: str | None = None,
        on_progress: EmbedProgress | None = None,
    ) -> SpaceQuality:
        """Measure the space of the other model, and answer questions from it from now on.

        `questions` is a file of questions with the sources of their answers, that both models are compared by. `force`
        is the reason to switch whatever is measured. Raises RequestError where the space is incomplete or measured to
        be worse, ConfigError, ModelError, IndexesBusy, DatabaseError.
        """
        return self._engine._reembedding.switch(  # noqa: SLF001
            self._tenant,
            questions=read_questions(Path(questions)) if questions is not None else (),
            force=force,
            on_progress=on_progress or _silent,
        )

    def embed_rollback(self) -> list[SpaceInfo]:
        """Answer questions from the space that was live before. Raises RequestError where there is none."""
        return self._engine._reembedding.rollback(self._tenant)  # noqa: SLF001

    def embed_drop(self, space: str, on_progress: EmbedProgress | None = None) -> list[SpaceInfo]:
        """Remove a space that is not live, by its model or id, with its vectors and its index.

        Raises RequestError where it is live or not there, IndexesBusy, ConfigError, DatabaseError.
        """
        return self._engine._reembedding.drop(self._tenant, space, on_progress or _silent)  # noqa: SLF001


def _reembedding_of(settings: Settings, embedder: Embedder | None, next_embedder: Embedder | None) -> Reembedding:
    return Engine(settings, embedder=embedder, next_embedder=next_embedder)._reembedding  # noqa: SLF001


def _silent(*_: object) -> None:
    """Tell nobody."""
