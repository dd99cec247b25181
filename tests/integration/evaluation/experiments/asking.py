"""A tenant to experiment with, and what came of its questions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag import Engine, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.types import SearchResult
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.models.testing.hashing import HashingEmbedder

WAIT_S = 60
WORDS = {"rag.retrieval.semantic_weight": 0.0}
"""A second configuration that is known by its retrievers: it has no dense one."""


def document(number: int, text: str = "", **more: Any) -> SourceDocument:
    return SourceDocument(source=f"d{number}", title="-", data=f"churn of account{number} {text}".encode(), **more)


def filled(engine: Engine, **scope: Any) -> Tenant:
    acme = engine.tenant("acme", **scope)
    acme.ingest(document(number, "churn " * (number % 5)) for number in range(12))
    return acme


def result(search_result: SearchResult) -> SearchResult:
    """What a result says, without how long it took."""
    return replace(search_result, stages=(), timings_ms={})


def drained(engine: Engine) -> None:
    assert engine.background.drain(WAIT_S)


def load_outcomes(database: DatabaseSettings, columns: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.admin_url or "") as connection:
        return connection.execute(f"SELECT {columns} FROM kosmos.experiment_results ORDER BY at".encode()).fetchall()


def as_admin(database: DatabaseSettings, statement: str) -> None:
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        connection.execute(statement.encode())


def preset_file(folder: Path, text: str) -> Path:
    path = folder / "plain.yaml"
    path.write_text(text)
    return path


class BrokenEmbedder(HashingEmbedder):
    """Fails on questions, once it is told to."""

    fails = False

    def embed_query(self, question: str) -> NDArray[np.float32]:
        if self.fails:
            raise ModelError(f"broken on purpose by {question}")
        return super().embed_query(question)
