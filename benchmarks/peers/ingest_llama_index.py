"""LlamaIndex ingests the chunks: VectorStoreIndex embeds the nodes and stores them in its PGVectorStore."""

import time
from typing import Any

from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import TextNode

from benchmarks.peers.child import BATCH, Task, embed_batch, load_model
from benchmarks.peers.llama_index import empty_store


class _Model(BaseEmbedding):
    """The model behind LlamaIndex's own batching, with the batch size that all systems have here."""

    _model: Any = PrivateAttr()

    def __init__(self) -> None:
        super().__init__(embed_batch_size=BATCH)
        self._model = load_model()

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return embed_batch(self._model, texts)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def main() -> None:
    """Measure."""
    task = Task.from_arguments()
    model = _Model()
    dimensions = len(model.get_query_embedding("warm"))
    nodes = [TextNode(id_=key, text=text) for key, text in zip(task.corpus.ids, task.corpus.texts, strict=True)]
    context = StorageContext.from_defaults(vector_store=empty_store(task, dimensions))
    began = time.perf_counter()
    VectorStoreIndex(nodes, storage_context=context, embed_model=model)
    packages = ["llama-index-vector-stores-postgres", "llama-index-core"]
    task.finish([], packages=packages, seconds=time.perf_counter() - began)


if __name__ == "__main__":
    main()
