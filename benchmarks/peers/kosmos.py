"""The rows of the library: its public interface, and the same question without it."""

import importlib.metadata
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import psycopg

from benchmarks.peers import bare
from benchmarks.peers.exchange import Outcome, Row
from benchmarks.peers.remembering import Remembering
from benchmarks.peers.server import Server
from benchmarks.peers.sets import TENANT, PreparedSet
from benchmarks.peers.timing import K, measure, time_in_turn
from benchmarks.quick import embedder as model_of
from kosmos_rag import Engine, SearchResult, Settings, Tenant
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import DEFAULT_COLLECTION
from kosmos_rag.core.version import __version__
from kosmos_rag.ingestion.document import ChunkedDocument
from kosmos_rag.ingestion.executor import BATCH_CHUNKS
from kosmos_rag.ingestion.publisher import Publisher
from kosmos_rag.models.embedding.registry import EmbedderRegistry, EmbeddingModel
from kosmos_rag.models.packaged import MINILM
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.migrate import migrate
from kosmos_rag.storage.provision import APP, WORKER, provision

BACKENDS = ("torch", "onnx")
WAYS: dict[str, dict[str, Any]] = {
    "score fusion": {"rag.retrieval.fusion": "score"},
    "vectors alone": {"rag.retrieval.keyword_weight": 0.0},
    "words alone": {"rag.retrieval.semantic_weight": 0.0},
}
"""What is changed in the shipped settings, which are a row for each backend of the model."""
DEFAULT = "the default"
_ROUNDS_IN_TURN = 3
_MODEL = {
    "rag.embedding.model": MINILM,
    "rag.embedding.dimensions": 384,
    "rag.reranking.enabled": False,
    # Each question is asked several times, and is to be embedded each time.
    "rag.retrieval.query_embedding_cache": 0,
}


def default(backend: str) -> str:
    """Name the row of the shipped default with a model on this backend."""
    return f"{DEFAULT}, {backend}"


def floor(backend: str) -> str:
    """Name the row of the default's statements alone, timed in turn with it."""
    return f"bare SQL: the statements of the default in one round trip, in turn with {backend}"


def embedding(backend: str) -> str:
    """Name the row of embedding a question alone."""
    return f"embedding a question, {backend}"


def settings(**changes: Any) -> Settings:
    """Return the shipped settings with the model of the bench, without reranking, and with `changes`."""
    return Settings.load(overrides={**_MODEL, **changes})


def embedder(backend: str, *, quick: bool = False) -> Embedder:
    """Return the model of the bench on a backend; for a quick run one that hashes words."""
    configured = settings(**{"models.backend": backend})
    return model_of(configured, quick=quick)


class Ours:
    """The library in a database of its own on the server."""

    def __init__(
        self, server: Server, database: str, data: PreparedSet, model: Remembering, models: Mapping[str, Embedder]
    ) -> None:
        """Prepare the database, which is empty but for pgvector.

        Args:
            server: The server that all systems share.
            database: The name of the database.
            data: What is stored and asked.
            model: Knows the vectors of all texts already.
            models: The model of each backend, which embeds questions while they are timed.
        """
        provision(server.url(database))
        migrate(server.url(database))
        self._addresses = {
            "database.url": server.url(database, APP),
            "database.worker_url": server.url(database, WORKER),
            "database.admin_url": server.url(database),
        }
        self._data = data
        self._model = model.model
        self._models = models
        self._handed = model

    def measure(self, rounds: int) -> Outcome:
        """Store the set, and ask it in every way. Raises KosmosError."""
        seconds = self._store()
        rows = [row for backend, model in self._models.items() for row in self._default(backend, model)]
        rows += (self._row(way, changes, rounds) for way, changes in WAYS.items())
        packages = ("sentence-transformers", "transformers", "torch", "onnxruntime", "psycopg")
        versions = {name: importlib.metadata.version(name) for name in packages}
        return Outcome(rows=rows, versions={"kosmos-rag": __version__, **versions}, seconds=seconds)

    def _engine(self, changes: Mapping[str, Any], model: Embedder) -> Engine:
        return Engine(settings(**self._addresses, **changes), embedder=model)

    def _store(self) -> float:
        """Publish the chunked documents and build what indexes are due; returns the seconds."""
        configured = settings(**self._addresses)
        with closing(Database(configured.database)) as database, self._engine({}, self._handed) as engine:
            began = time.perf_counter()
            publisher = Publisher(
                database,
                EmbedderRegistry(EmbeddingModel(embedder=self._handed, normalized=True), None),
            )
            for batch in _batches(self._data.documents):
                for result in publisher.publish(TENANT, DEFAULT_COLLECTION, batch):
                    if result.error is not None:
                        raise result.error
            engine.tenant(TENANT.name).indexes.build()
            seconds = time.perf_counter() - began
        with psycopg.connect(configured.database.admin_url or "", autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")
        return seconds

    def _default(self, backend: str, model: Embedder) -> list[Row]:
        """Return the rows of the shipped default and of what it cannot do without, timed in turn.

        The statements are what the default executes for each question, once its caches are warm. One backend at a time:
        the threads of one keep a core busy for a while after each call, and would slow the other.
        """
        questions = list(self._data.corpus.questions.values())
        with ExitStack() as stack:
            whole, search = (
                stack.enter_context(self._engine({}, embedder)).tenant(TENANT.name)
                for embedder in (model, self._handed)
            )
            accounts = [search.search(question, K) for question in questions]
            statements = [_statements(search, question) for question in questions]
            connection = stack.enter_context(bare.reader(self._addresses["database.url"]))
            calls: dict[str, list[Callable[[], object]]] = {
                "whole": [partial(whole.search, question, K) for question in questions],
                "search": [partial(search.search, question, K) for question in questions],
                "bare": [partial(bare.replay, connection, group) for group in statements],
                "embedding": [partial(model.embed_query, question) for question in questions],
            }
            times = time_in_turn(calls, _ROUNDS_IN_TURN)
        rankings = {key: _ids(account) for key, account in zip(self._data.corpus.questions, accounts, strict=True)}
        return [
            Row(
                way=default(backend),
                plan=_plan(accounts[0]),
                rankings=rankings,
                whole=times["whole"],
                search=times["search"],
            ),
            Row(way=floor(backend), plan=f"{len(statements[0])} statements", search=times["bare"]),
            Row(way=embedding(backend), plan="", whole=times["embedding"]),
        ]

    def _row(self, way: str, changes: Mapping[str, Any], rounds: int) -> Row:
        with self._engine(changes, self._model) as whole, self._engine(changes, self._handed) as search:
            of_whole, of_search = whole.tenant(TENANT.name), search.tenant(TENANT.name)
            return measure(
                self._data.corpus,
                way=way,
                plan=_plan(of_search.search(next(iter(self._data.corpus.questions.values())), K)),
                whole=lambda question: _ids(of_whole.search(question, K)),
                search=lambda question, _vector: _ids(of_search.search(question, K)),
                rounds=rounds,
            )


def _statements(tenant: Tenant, question: str) -> list[bare.Statement]:
    with bare.record_statements() as statements:
        tenant.search(question, K)
    return statements


def _plan(answer: SearchResult) -> str:
    return "; ".join(f"{retriever}: {account.plan}" for retriever, account in answer.retrievers.items())


def _ids(answer: SearchResult) -> list[str]:
    return [str(hit.chunk_id) for hit in answer.hits]


def _batches(documents: Sequence[ChunkedDocument]) -> Iterator[list[ChunkedDocument]]:
    """Cut the documents into batches as the pipeline does."""
    batch: list[ChunkedDocument] = []
    for document in documents:
        batch.append(document)
        if sum(len(waiting.chunks) for waiting in batch) >= BATCH_CHUNKS:
            yield batch
            batch = []
    if batch:
        yield batch
