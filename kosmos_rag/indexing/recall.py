"""How far a vector index has to be searched: recall and latency measured against the exact scan, on the tenant's data.

Questions are made of the tenant's own text: some words in a row, of chunks drawn at random, embedded as a question is.
Stored vectors would be easier to find: they lie where the index has its lists, and a question lies beside.
"""

import math
import random
import statistics
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector
from psycopg import sql

from kosmos_rag.storage.sql import statement

DEPTH = 100
_QUESTION_CHARS = 120
QUERIES = 64
"""Questions that recall is measured with."""
_SLACK = 0.02
"""How much less of the hundred nearest may be found than of the ten nearest."""

NO_FILTER: dict[str, Any] = {
    "collection": None,
    "filtered": False,
    "required": None,
    "condition": None,
    "condition_values": None,
    "sources": [],
    "folders": [],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What one setting of an index gives."""

    setting: int
    """Probes, or ef_search."""
    recall_at_10: float
    recall_at_100: float
    error: float
    """Standard error of recall_at_10: other questions would give another mean."""
    p50_ms: float

    def meets(self, target: float) -> bool:
        """Whether enough of the nearest are found, with a standard error to spare where not all are."""
        return self.recall_at_10 - self.error >= target and self.recall_at_100 >= target - _SLACK


Search = Callable[[NDArray[np.float32]], list[Any]]


def sample_questions(connection: psycopg.Connection, tenant_id: uuid.UUID) -> list[str]:
    """Return questions made of the tenant's text: eight to twelve words in a row, of chunks drawn at random.

    None only where the tenant has no chunks.
    """
    texts = [
        text
        for number in range(QUERIES)
        # Ids of chunks are hashes: those after evenly spaced ones are chunks at random.
        for (text,) in connection.execute(
            statement("chunk_after"), {"tenant_id": tenant_id, "id": uuid.UUID(int=(number << 128) // QUERIES)}
        ).fetchall()
    ]
    return [_some_words(text) for text in texts]


def _some_words(text: str) -> str:
    words = text.split()
    count = random.randint(8, 12)  # noqa: S311 — no secret
    start = random.randint(0, max(0, len(words) - count))  # noqa: S311
    # Text without spaces is one word: all of it would be no question.
    return " ".join(words[start : start + count])[:_QUESTION_CHARS]


def exact(connection: psycopg.Connection, scope: Mapping[str, Any]) -> Search:
    """Return the exact search over a space."""
    return lambda query: [chunk_id for chunk_id, _ in nearest(connection, scope, query)]


def nearest(
    connection: psycopg.Connection, scope: Mapping[str, Any], query: NDArray[np.float32]
) -> list[tuple[uuid.UUID, float]]:
    """Return the nearest of a space with their scores, by an exact scan."""
    values = {**NO_FILTER, **scope, "vector": HalfVector(query.astype(np.float16)), "depth": DEPTH}
    return connection.execute(statement("dense_exact"), values).fetchall()


def by_index(
    connection: psycopg.Connection, scope: Mapping[str, Any], *, dimensions: int, oversampling: int | None
) -> Search:
    """Return the search by index over a space, as far as the transaction is set to search."""
    text = sql.SQL(statement("dense_by_bits") if oversampling else statement("dense_by_index"))
    query_text = text.format(dimensions=sql.Literal(dimensions))

    def search(query: NDArray[np.float32]) -> list[Any]:
        vector = HalfVector(query.astype(np.float16))
        values = {**NO_FILTER, **scope, "vector": vector, "depth": DEPTH, "pool": DEPTH * (oversampling or 1)}
        rows = connection.execute(query_text, values).fetchall()
        return [row[0] for row in sorted(rows, key=lambda row: (-row[1], row[0]))]

    return search


def measure(search: Search, setting: int, queries: Sequence[NDArray[np.float32]], truth: list[list[Any]]) -> Measured:
    """Return recall and median latency of a search over these queries."""
    found, p50_ms = timed(search, queries)
    return summary(setting, found, truth, p50_ms)


def summary(setting: int, found: list[list[Any]], truth: list[list[Any]], p50_ms: float) -> Measured:
    """Return recall of what searches found, by what an exact scan did."""
    at_10 = [_share(hits, nearest, 10) for hits, nearest in zip(found, truth, strict=True)]
    at_100 = [_share(hits, nearest, DEPTH) for hits, nearest in zip(found, truth, strict=True)]
    return Measured(
        setting=setting,
        recall_at_10=statistics.fmean(at_10),
        error=statistics.stdev(at_10) / math.sqrt(len(at_10)) if len(at_10) > 1 else 0.0,
        recall_at_100=statistics.fmean(at_100),
        p50_ms=p50_ms,
    )


def timed(search: Search, queries: Sequence[NDArray[np.float32]]) -> tuple[list[list[Any]], float]:
    """Return what each query finds, and the median latency in milliseconds."""
    took, found = [], []
    for query in queries:
        started = time.perf_counter()
        found.append(search(query))
        took.append((time.perf_counter() - started) * 1000)
    return found, statistics.median(took)


def _share(found: list[Any], nearest: list[Any], k: int) -> float:
    wanted = set(nearest[:k])
    return len(wanted.intersection(found[:k])) / len(wanted) if wanted else 1.0


def smallest_that_meets(target: float, settings: list[int], measured: Callable[[int], Measured]) -> Measured:
    """Return the measurement of the smallest setting that meets the target, else of the largest.

    `settings` rise, and recall with them: a bisection, so that few are measured.
    """
    low, high = 0, len(settings) - 1
    best = None
    while low <= high:
        middle = (low + high) // 2
        result = measured(settings[middle])
        if result.meets(target):
            best, high = result, middle - 1
        else:
            low = middle + 1
    return best or measured(settings[-1])
