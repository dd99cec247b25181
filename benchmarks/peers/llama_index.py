"""llama-index-vector-stores-postgres: PGVectorStore with hybrid search, in an environment of its own."""

import time

import numpy as np
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import QueryBundle, TextNode
from llama_index.core.vector_stores import VectorStoreQuery
from llama_index.core.vector_stores.types import VectorStoreQueryMode
from llama_index.vector_stores.postgres import PGVectorStore
from numpy.typing import NDArray

from benchmarks.peers.child import Task
from benchmarks.peers.timing import DEPTH, K, Search

PLAN = "no vector index; GIN"


def empty_store(task: Task, dimensions: int) -> PGVectorStore:
    """Return a store for both retrievers, with the indexes that it makes by default."""
    return PGVectorStore.from_params(
        connection_string=task.sqlalchemy_url("psycopg2"),
        async_connection_string=task.sqlalchemy_url("asyncpg"),
        table_name="chunks",
        embed_dim=dimensions,
        hybrid_search=True,
        text_search_config="english",
    )


def _store_corpus(task: Task) -> tuple[PGVectorStore, float]:
    """Store the corpus; returns the seconds too."""
    corpus, dimensions = task.corpus, task.corpus.vectors.shape[1]
    rows = zip(corpus.ids, corpus.texts, corpus.vectors.tolist(), strict=True)
    nodes = [TextNode(id_=key, text=text, embedding=vector) for key, text, vector in rows]
    began = time.perf_counter()
    store = empty_store(task, dimensions)
    store.add(nodes)
    return store, time.perf_counter() - began


def _hybrid(store: PGVectorStore) -> Search:
    """Return the store's own hybrid mode: the hits of the vectors, then those of the words that are not among them."""

    def search(question: str, vector: NDArray[np.float32]) -> list[str]:
        query = VectorStoreQuery(
            query_embedding=vector.tolist(),
            query_str=question,
            similarity_top_k=DEPTH,
            sparse_top_k=DEPTH,
            mode=VectorStoreQueryMode.HYBRID,
        )
        return list(store.query(query).ids or [])[:K]

    return search


def _create_fusion_search(store: PGVectorStore, dimensions: int) -> Search:
    """Return the retriever that the store's documentation recommends over its hybrid mode, by relative score."""
    index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(embed_dim=dimensions))
    retrievers = [
        index.as_retriever(vector_store_query_mode=mode, similarity_top_k=DEPTH, sparse_top_k=DEPTH)
        for mode in ("default", "sparse")
    ]
    retriever = QueryFusionRetriever(
        retrievers, llm=MockLLM(), mode=FUSION_MODES.RELATIVE_SCORE, similarity_top_k=K, num_queries=1, use_async=False
    )

    def search(question: str, vector: NDArray[np.float32]) -> list[str]:
        nodes = retriever.retrieve(QueryBundle(question, embedding=vector.tolist()))
        return [node.node.node_id for node in nodes]

    return search


def main() -> None:
    """Measure."""
    task = Task.from_arguments()
    store, seconds = _store_corpus(task)
    task.vacuum()
    rows = [
        task.row(f"hybrid mode, {DEPTH} + {DEPTH}", PLAN, _hybrid(store)),
        task.row(
            f"QueryFusionRetriever of {DEPTH} + {DEPTH}",
            PLAN,
            _create_fusion_search(store, task.corpus.vectors.shape[1]),
        ),
    ]
    packages = ["llama-index-vector-stores-postgres", "llama-index-core"]
    task.finish(rows, packages=packages, seconds=seconds)


if __name__ == "__main__":
    main()
