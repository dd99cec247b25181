"""langchain-postgres ingests the chunks: PGVectorStore.add_texts embeds and stores, then comes the word index."""

import time

from langchain_core.embeddings import Embeddings
from langchain_postgres import PGEngine, PGVectorStore
from langchain_postgres.v2.hybrid_search_config import HybridSearchConfig

from benchmarks.peers.child import Task, embed_batch, load_model


class Model(Embeddings):
    """The model as LangChain's own adapter of sentence-transformers calls it: all texts at once."""

    def __init__(self) -> None:
        self._model = load_model()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return embed_batch(self._model, texts)

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def main() -> None:
    """Measure."""
    task = Task.from_arguments()
    model = Model()
    dimensions = len(model.embed_query("warm"))
    engine = PGEngine.from_connection_string(task.sqlalchemy_url("psycopg"))
    config = HybridSearchConfig(tsv_column="content_tsv")
    engine.init_vectorstore_table("chunks", dimensions, hybrid_search_config=config)
    store = PGVectorStore.create_sync(engine, model, "chunks", hybrid_search_config=config)
    began = time.perf_counter()
    store.add_texts(task.corpus.texts, ids=task.corpus.ids)
    store.apply_hybrid_search_index()
    task.finish([], packages=["langchain-postgres"], seconds=time.perf_counter() - began)


if __name__ == "__main__":
    main()
