"""The composition root: builds an engine from settings.

Only this module and models.py choose the adapter of each port.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from kosmos_rag.answering.pipeline import Answerer
from kosmos_rag.answering.scorers import EmbeddingScorer, RerankingScorer
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.names import validate_name
from kosmos_rag.core.protocols import Embedder, LanguageModel, Observer, Reranker
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import EVERYONE, are_names, is_text
from kosmos_rag.engine.api_keys import KeyReader
from kosmos_rag.engine.background import BackgroundQueue
from kosmos_rag.engine.collections import CollectionPipelines, Collections, PipelineCache
from kosmos_rag.engine.components import EngineComponents
from kosmos_rag.engine.directory import DirectoryReader
from kosmos_rag.engine.models import EngineModels
from kosmos_rag.engine.page_images import PageImages
from kosmos_rag.engine.query import QueryHandler
from kosmos_rag.engine.query_hooks import HookContext, HookFactory, Treatment, load_query_hooks
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.indexing.maintenance import IndexMaintenance
from kosmos_rag.indexing.reembedding.migration import Reembedding
from kosmos_rag.ingestion.pipeline import IngestPipeline
from kosmos_rag.models.catalogue import list_languages
from kosmos_rag.models.embedding.registry import create_registry
from kosmos_rag.models.reranking.batch_size import RerankBatchSize
from kosmos_rag.retrieval.pipeline import SearchPipeline
from kosmos_rag.retrieval.resources import SearchResources
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.erasure import rewrite_files
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.preflight import ServerState
from kosmos_rag.storage.provision import APP
from kosmos_rag.storage.tenants import TenantRef, tenant

_MAX_SUBJECT = 300
_CLOSE_TIMEOUT_S = 2.0
"""How long `close` waits for background work."""


class Engine:
    """A retrieval engine over one database. Thread-safe.

    Close it, or use it as a context manager.

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
        query_hooks: HookFactory | None = None,
    ) -> None:
        """Compose an engine.

        Models and connections open on first use; the embedded server starts now. `embedder`, `next_embedder`,
        `reranker` and `language_model` replace what the settings name: any object with the methods of the port.
        `query_hooks` replaces the experiments and samples of the mounted wing. Raises ConfigError, DatabaseUnavailable,
        DatabaseNotReady.
        """
        self.settings = settings
        self._models = EngineModels(
            settings,
            embedder=embedder,
            next_embedder=next_embedder,
            reranker=reranker,
            language_model=language_model,
        )
        try:
            self._database = Database(settings.database)
        except BaseException:
            self._models.close()
            raise
        # A connection of its own: background work takes none from readers.
        self._background_pool = _background_pool(self._database, settings)
        self._telemetry = Telemetry(slow_ms=settings.observability.slow_ms)
        try:
            self._components = self._compose(
                partial(_create_reembedding, settings, embedder, next_embedder), query_hooks or load_query_hooks
            )
        except BaseException:
            self._disconnect()
            raise

    def _compose(self, reembedding_factory: Callable[[], Reembedding], create_hooks: HookFactory) -> EngineComponents:
        settings, database, telemetry, models = self.settings, self._database, self._telemetry, self._models
        database.attach(telemetry)
        embedders = create_registry(settings, models.embedder, models.next_embedder)
        resources = SearchResources.create(
            database.app, embedders, models.reranker, models.language_model, settings, telemetry
        )
        pipelines = _create_pipelines(settings, models, resources)
        hooks = create_hooks(self._hook_context(pipelines.default.search))
        indexes = IndexMaintenance(database, embedders, settings)
        background = BackgroundQueue()
        return EngineComponents(
            settings=settings,
            database=database,
            embedder=models.embedder,
            language_model=models.language_model,
            ingest_pipeline=IngestPipeline(
                database, embedders, settings, telemetry, None if hooks.meter is None else hooks.meter.charge
            ),
            collections=Collections(database, settings),
            pipelines=pipelines,
            queries=QueryHandler(
                pool=database.app,
                background_pool=self._background_pool,
                settings=settings,
                pipelines=pipelines,
                hooks=hooks,
                background=background,
                telemetry=telemetry,
                embedder=models.embedder,
                language_model=models.language_model,
            ),
            background=background,
            page_images=PageImages(settings.ingestion.parsing),
            indexes=indexes,
            reembedding=Reembedding(database, embedders, indexes, settings),
            reembedding_factory=reembedding_factory,
            meter=hooks.meter,
            directory=hooks.directory,
        )

    def _hook_context(self, search: SearchPipeline) -> HookContext:
        def create_treatment(settings: Settings) -> Treatment:
            # No preset has such a hash: cached results of one configuration are never those of another.
            pipeline = search.with_settings(settings, f"experiment {settings.settings_hash}")
            return Treatment(pipeline, pipeline.for_background(self._background_pool), settings.settings_hash)

        def write(owner: TenantRef) -> AbstractContextManager[psycopg.Connection]:
            return self._database.worker.transaction(owner.id, [EVERYONE])

        def append(owner: TenantRef) -> AbstractContextManager[psycopg.Connection]:
            return self._background_pool.transaction(owner.id, (), append_only=True)

        def read(owner: TenantRef) -> AbstractContextManager[psycopg.Connection]:
            return self._background_pool.transaction(owner.id, ())

        return HookContext(
            settings=self.settings,
            telemetry=self._telemetry,
            create_treatment=create_treatment,
            reranks=search.reranks,
            write=write,
            append=append,
            read=read,
        )

    @classmethod
    def open(cls, config: Settings | str | Path | None = None) -> Self:
        """Open an engine from settings, a file, or the default locations.

        Those of `Settings.load`.

        Raises ConfigError, DatabaseUnavailable, DatabaseNotReady.
        """
        return cls(config if isinstance(config, Settings) else Settings.load(config))

    def tenant(
        self,
        name: str,
        *,
        principals: Sequence[str] = (EVERYONE,),
        collection: str | None = None,
        subject: str | None = None,
        read_your_writes: bool = False,
        is_watched: bool = False,
    ) -> Tenant:
        """Return a tenant, or one of its collections, for a reader.

        Raises RequestError on a malformed name or subject, and on principals that are not a sequence of names.

        Args:
            principals: What the reader holds: a document is visible with at least one principal of its ACL.
            collection: None for all collections.
            subject: Id or name of the reader for the audit log, as the caller authenticated it.
            read_your_writes: Whether searches see what was written before; with `database.replica_urls` a replica may
                be some seconds behind, and the primary answers then.
            is_watched: Whether the audit log has each access with its question, whatever `rag.audit` says: the subject
                looks as another reader.
        """
        if not are_names(principals):
            raise RequestError(f"principals are {principals!r}; give a list of names, ['finance']")
        if collection is not None:
            validate_name("collection", collection)
        if subject is not None and not (is_text(subject) and 0 < len(subject) <= _MAX_SUBJECT):
            raise RequestError(f"the subject is {str(subject)[:80]!r}; give a text of 1 to {_MAX_SUBJECT} characters")
        return Tenant(
            self._components,
            tenant(name),
            tuple(principals),
            collection,
            subject,
            read_your_writes=read_your_writes,
            is_watched=is_watched,
        )

    @property
    def has_directory(self) -> bool:
        """Whether a wing knows the groups of readers."""
        return self._components.directory is not None

    @property
    def database(self) -> Database:
        """The connections of the engine, for the worker; faces and wings work through `tenant`."""
        return self._database

    @property
    def ingest_pipeline(self) -> IngestPipeline:
        """Ingests documents, for the worker."""
        return self._components.ingest_pipeline

    @property
    def indexes(self) -> IndexMaintenance:
        """Maintains the indexes of all tenants, for the worker."""
        return self._components.indexes

    @property
    def background(self) -> BackgroundQueue:
        """Work that no caller waits for; `drain` waits for it."""
        return self._components.background

    @property
    def telemetry(self) -> Telemetry:
        """Passes metrics to the observers."""
        return self._telemetry

    @property
    def embedder(self) -> Embedder:
        """The embedding model; another engine may share it."""
        return self._models.embedder

    @property
    def language_model(self) -> LanguageModel | None:
        """The language model; None without one."""
        return self._models.language_model

    def warm_up(self) -> None:
        """Load the models before the first query.

        Raises ModelUnavailable for the embedding model.
        """
        self._components.pipelines.default.search.warm_up()

    def observe(self, observer: Observer) -> None:
        """Pass metrics to an observer from now on, such as `PrometheusObserver`."""
        self._telemetry.attach(observer)

    def inspect(self) -> ServerState:
        """Check the database as readers see it: revision, row-level security, nodes of a cluster.

        Raises DatabaseError where it cannot be reached.
        """
        return self._database.app.inspect()

    def open_key_reader(self, connections: int) -> KeyReader:
        """Open a reader of API keys with connections of its own; the caller closes it."""
        return KeyReader(self._database.open_reader_pool(size=connections))

    def open_directory_reader(self, connections: int) -> DirectoryReader:
        """Open a reader of the groups of readers; the caller closes it.

        It has connections of its own. Raises RequestError where no wing knows the groups.
        """
        if self._components.directory is None:
            raise RequestError("no directory is enabled; set scim.enabled")
        return DirectoryReader(self._database.open_reader_pool(size=connections), self._components.directory)

    def purge_files(self) -> None:
        """Rewrite the files of the database, to remove erased rows physically.

        It takes exclusive locks. Raises ConfigError unless `database.admin_url` is of a superuser, DatabaseError.
        """
        rewrite_files(self._database.require_superuser())

    def require_purge(self) -> None:
        """Raise ConfigError where `purge_files` could not rewrite files, DatabaseError."""
        self._database.require_superuser()

    def close(self) -> None:
        """Finish background work and close the connections.

        The embedded server stops with its last user.
        """
        self._components.background.close(_CLOSE_TIMEOUT_S)
        # A model that is closed uses nothing more, and the meter still needs a connection.
        self._models.close()
        if self._components.meter is not None:
            self._components.meter.close()
        self._disconnect()

    def _disconnect(self) -> None:
        self._background_pool.close()
        self._database.close()
        self._models.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _create_pipelines(settings: Settings, models: EngineModels, resources: SearchResources) -> PipelineCache:
    """Return the pipelines of the settings, which build those of presets from the same models."""
    languages = list_languages(settings.rag.embedding.model, "embedding")
    # The search has embedded the question already.
    question_vectors = resources.embeddings[id(models.embedder)]
    scorer = EmbeddingScorer(models.embedder, embed_question=lambda text: question_vectors.get(text, None))
    search = SearchPipeline(resources, settings)

    def build(settings: Settings, search: SearchPipeline) -> CollectionPipelines:
        rag, reranking_scorer = settings.rag, None
        if models.reranker is not None and resources.rerank is not None:
            run = resources.rerank.with_settings(rag.reranking).run_call
            reranking_scorer = RerankingScorer(models.reranker, RerankBatchSize(rag.reranking), run)
        answerer = Answerer(
            models.embedder,
            models.language_model,
            rag,
            scorer=scorer,
            reranking_scorer=reranking_scorer,
            languages=languages,
        )
        return CollectionPipelines(settings=settings, search=search, answerer=answerer)

    def build_preset(preset: Settings) -> CollectionPipelines:
        return build(preset, search.with_settings(preset, preset.settings_hash))

    return PipelineCache(build(settings, search), build_preset)


def _create_reembedding(settings: Settings, embedder: Embedder | None, next_embedder: Embedder | None) -> Reembedding:
    """Create a re-embedding with connections and models of its own, in a process without an engine."""
    database = Database(settings.database)
    models = EngineModels(settings, embedder=embedder, next_embedder=next_embedder)
    embedders = create_registry(settings, models.embedder, models.next_embedder)
    return Reembedding(database, embedders, IndexMaintenance(database, embedders, settings), settings)


def _background_pool(database: Database, settings: Settings) -> ConnectionPool:
    url = database.urls()["url"]
    assert url is not None, "readers have an address"
    return ConnectionPool(url, role=APP, settings=settings.database.model_copy(update={"pool_size": 1}))
