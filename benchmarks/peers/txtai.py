"""txtai: vectors by pgvector, words by pgtext, texts in the same database, in an environment of its own."""

import tempfile
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from txtai import Embeddings

from benchmarks.peers.child import Task
from benchmarks.peers.timing import K

PLAN = "HNSW where the planner takes it; all rows ranked by words, without the GIN index"


def main() -> None:
    """Measure."""
    task = Task.from_arguments()
    url = task.sqlalchemy_url("psycopg2")
    vectors = dict(zip(task.corpus.texts, task.corpus.vectors, strict=True))

    def transform(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([vectors[text] for text in texts])

    embeddings = Embeddings(
        method="external",
        transform=transform,
        content=url,
        backend="pgvector",
        pgvector={"url": url},
        scoring={"method": "pgtext", "url": url, "language": "english"},
        hybrid=True,
    )
    began = time.perf_counter()
    embeddings.index((key, text, None) for key, text in zip(task.corpus.ids, task.corpus.texts, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        embeddings.save(folder)  # commits, and writes the settings to the folder
    seconds = time.perf_counter() - began
    task.vacuum()

    def search(question: str, vector: NDArray[np.float32]) -> list[str]:
        vectors[question] = vector
        return [hit["id"] for hit in embeddings.search(question, K)]

    task.finish([task.row("hybrid", PLAN, search)], packages=["txtai"], seconds=seconds)


if __name__ == "__main__":
    main()
