"""The composition root: settings in, a working engine out. The only place that knows which adapter fills which port."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from kosmos_rag.answering.pipeline import Answerer
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.protocols import Embedder, LanguageModel, Observer, Reranker
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import EVERYONE, are_names, is_text
from kosmos_rag.engine.collections import Collections, PerCollection
from kosmos_rag.engine.components import Parts, Shape
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.experiments.assignment import Experiments
from kosmos_rag.indexing.maintenance import IndexMaintenance
from kosmos_rag.indexing.reembedding.migration import Reembedding
from kosmos_rag.ingestion.pipeline import IngestPipeline
from kosmos_rag.models.embedding.registry import create_registry
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.llm.client import ChatModel
from kosmos_rag.models.reranker import CrossEncoderReranker
from kosmos_rag.retrieval.pipeline import Retriever
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.tenants import tenant, well_formed

_MAX_SUBJECT = 300


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
        if reranker is None and settings.rag.reranking.enabled:
            reranker = CrossEncoderReranker(settings.rag.reranking, settings.models)
        self._chat = ChatModel(settings.language_model) if settings.language_model.url and not language_model else None
        self._database = Database(settings.database)
        self._telemetry = Telemetry(slow_ms=settings.observability.slow_ms)
        try:
            self._parts, self._retriever = self._compose(
                embedder, next_embedder, reranker, language_model or self._chat
            )
        except BaseException:
            self._disconnect()
            raise

    def _compose(
        self,
        embedder: Embedder | None,
        next_embedder: Embedder | None,
        reranker: Reranker | None,
        language_model: LanguageModel | None,
    ) -> tuple[Parts, Retriever]:
        settings, database, telemetry = self.settings, self._database, self._telemetry
        database.tell(telemetry)
        live = embedder or SentenceTransformerEmbedder(settings.rag.embedding, settings.models)
        embedders = create_registry(settings, live, next_embedder)
        retriever = Retriever(database, embedders, reranker, language_model, settings, telemetry)
        indexes = IndexMaintenance(database, embedders, settings)

        def shape_under(under: Settings, version: str) -> Shape:
            return Shape(
                settings=under,
                retriever=retriever.under(under, version),
                answerer=Answerer(live, language_model, under.rag),
            )

        plain = Shape(
            settings=settings,
            retriever=retriever,
            answerer=Answerer(live, language_model, settings.rag),
        )
        parts = Parts(
            settings=settings,
            database=database,
            telemetry=telemetry,
            embedder=live,
            language_model=language_model,
            ingest_pipeline=IngestPipeline(database, embedders, settings, telemetry),
            collections=Collections(database, settings),
            shapes=PerCollection(plain, settings, shape_under),
            experiments=Experiments(database, retriever, settings, telemetry),
            indexes=indexes,
            reembedding=Reembedding(database, embedders, indexes, settings),
            reembedding_again=partial(_reembedding_of, settings, embedder, next_embedder),
        )
        return parts, retriever

    @classmethod
    def open(cls, config: Settings | str | Path | None = None) -> Self:
        """Open an engine from settings, from a file, or from where `Settings.load` looks for one.

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
    ) -> Tenant:
        """Return the scope of a tenant, or of one collection of it, for a reader who holds these principals.

        `subject` is who that is, for the audit log: an id or a name, as the caller authenticated it.
        Raises RequestError on a malformed name or subject, and on principals that are not a sequence of names.
        """
        if not are_names(principals):
            raise RequestError(f"principals are {principals!r}; give a list of names, ['finance']")
        if collection is not None:
            well_formed("collection", collection)
        if subject is not None and not (is_text(subject) and 0 < len(subject) <= _MAX_SUBJECT):
            raise RequestError(f"the subject is {str(subject)[:80]!r}; give a text of 1 to {_MAX_SUBJECT} characters")
        return Tenant(self._parts, tenant(name), tuple(principals), collection, subject)

    @property
    def parts(self) -> Parts:
        """What workers of ours work with, beyond what the scope of a tenant offers."""
        return self._parts

    def warm_up(self) -> None:
        """Load the models now and not with the first question. Raises ModelUnavailable for the embedding model."""
        self._retriever.warm_up()

    def observe(self, observer: Observer) -> None:
        """Tell an observer of what is done from now on: `kosmos_rag.core.telemetry.prometheus` has one."""
        self._telemetry.attach(observer)

    def close(self) -> None:
        """Close the connections. The embedded server stops with the last process that uses it."""
        self._parts.experiments.close()
        self._retriever.close()
        self._disconnect()

    def _disconnect(self) -> None:
        self._database.close()
        if self._chat is not None:
            self._chat.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _reembedding_of(settings: Settings, embedder: Embedder | None, next_embedder: Embedder | None) -> Reembedding:
    return Engine(settings, embedder=embedder, next_embedder=next_embedder).parts.reembedding
