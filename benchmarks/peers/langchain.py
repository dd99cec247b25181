"""langchain-postgres: PGVectorStore with hybrid search, in an environment of its own."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_postgres import PGEngine, PGVectorStore
from langchain_postgres.v2.hybrid_search_config import HybridSearchConfig, reciprocal_rank_fusion
from numpy.typing import NDArray

from benchmarks.peers.child import Task
from benchmarks.peers.timing import DEPTH, K, Search

TABLE = "chunks"
COLUMN = "content_tsv"
PLAN = "no vector index; GIN"


class _Given(Embeddings):
    """The store asks for an embedding service; vectors are handed to it here."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise NotImplementedError("vectors are given")

    def embed_query(self, text: str) -> list[float]:
        raise NotImplementedError("vectors are given")


def _store_corpus(task: Task) -> tuple[PGVectorStore, float]:
    """Store and index the corpus as the documentation says; returns the seconds too."""
    corpus, vectors = task.corpus, task.corpus.vectors.tolist()
    engine = PGEngine.from_connection_string(task.sqlalchemy_url("psycopg"))
    began = time.perf_counter()
    config = HybridSearchConfig(tsv_column=COLUMN)
    engine.init_vectorstore_table(TABLE, len(vectors[0]), hybrid_search_config=config)
    store = PGVectorStore.create_sync(engine, _Given(), TABLE, hybrid_search_config=config)
    store.add_embeddings(corpus.texts, vectors, ids=corpus.ids)
    store.apply_hybrid_search_index()
    return store, time.perf_counter() - began


def _search(store: PGVectorStore, settings: Callable[[], dict[str, Any]]) -> Search:
    def search(question: str, vector: NDArray[np.float32]) -> list[str]:
        # A configuration of its own for each question: the store keeps the first question's words in it.
        config = HybridSearchConfig(tsv_column=COLUMN, fts_query=question, **settings())
        hits = store.similarity_search_with_score_by_vector(vector.tolist(), k=K, hybrid_search_config=config)
        return [str(document.id) for document, _ in hits]

    return search


def main() -> None:
    """Measure."""
    task = Task.from_arguments()
    store, seconds = _store_corpus(task)
    task.vacuum()
    wide = {"fusion_function": reciprocal_rank_fusion, "primary_top_k": DEPTH, "secondary_top_k": DEPTH}
    rows = [
        task.row(f"RRF of {DEPTH} + {DEPTH}", PLAN, _search(store, lambda: wide)),
        task.row("by default: weighted sum of 4 + 4", PLAN, _search(store, dict)),
    ]
    task.finish(rows, packages=["langchain-postgres"], seconds=seconds)


if __name__ == "__main__":
    main()
