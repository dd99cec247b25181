"""Recall and latency of a vector index against the exact scan.

It also finds the search setting that reaches a target. The queries are made of the tenant's own text: some consecutive
words of random chunks, embedded like a query. Stored vectors would be too easy: the lists of the index are around
them, while a query is only near them.
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
_MAX_QUERY_CHARS = 120
QUERIES = 64
"""Number of queries that recall is measured with."""
_RECALL_100_SLACK = 0.02
"""How far recall@100 may lie below the target of recall@10."""

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
class Recall:
    """Recall and latency of an index at one search setting."""

    setting: int
    """`probes` or `ef_search`."""
    recall_at_10: float
    recall_at_100: float
    standard_error: float
    """Of recall_at_10, over the queries."""
    p50_ms: float

    def reaches(self, target: float) -> bool:
        """Return whether recall@10 less its standard error, and recall@100, reach the target."""
        return self.recall_at_10 - self.standard_error >= target and self.recall_at_100 >= target - _RECALL_100_SLACK


SearchFunction = Callable[[NDArray[np.float32]], list[Any]]
"""Returns the ids of the DEPTH nearest chunks of a query vector of shape (dimensions,), the nearest first."""


def sample_queries(connection: psycopg.Connection, tenant_id: uuid.UUID) -> list[str]:
    """Return queries of eight to twelve consecutive words of random chunks.

    The result is empty if the tenant has no chunks.
    """
    texts = [
        text
        for number in range(QUERIES)
        # Ids of chunks are hashes, so the chunks after evenly spaced ids are random.
        for (text,) in connection.execute(
            statement("chunk_after"), {"tenant_id": tenant_id, "id": uuid.UUID(int=(number << 128) // QUERIES)}
        ).fetchall()
    ]
    return [_random_words(text) for text in texts]


def _random_words(text: str) -> str:
    words = text.split()
    count = random.randint(8, 12)  # noqa: S311 — not for security
    start = random.randint(0, max(0, len(words) - count))  # noqa: S311
    # Text without spaces is one word of any length.
    return " ".join(words[start : start + count])[:_MAX_QUERY_CHARS]


def exact_search(connection: psycopg.Connection, scope: Mapping[str, Any]) -> SearchFunction:
    """Return the exact search over a space; `scope` binds `tenant_id` and `space_id`."""
    return lambda query: [chunk_id for chunk_id, _ in nearest_neighbours(connection, scope, query)]


def nearest_neighbours(
    connection: psycopg.Connection, scope: Mapping[str, Any], query: NDArray[np.float32]
) -> list[tuple[uuid.UUID, float]]:
    """Return the DEPTH nearest chunks with scores, by exact scan.

    Args:
        connection: A connection in a transaction of the tenant.
        scope: Binds `tenant_id` and `space_id`, and may bind the values of NO_FILTER.
        query: The query vector, of shape (dimensions,).
    """
    values = {**NO_FILTER, **scope, "vector": HalfVector(query.astype(np.float16)), "depth": DEPTH}
    return connection.execute(statement("dense_exact"), values).fetchall()


def index_search(
    connection: psycopg.Connection, scope: Mapping[str, Any], *, dimensions: int, oversampling: int | None
) -> SearchFunction:
    """Return the results of an index, at the transaction's search setting.

    Args:
        connection: A connection in a transaction of the tenant.
        scope: Binds `tenant_id`, `space_id` and `index_id`.
        oversampling: Candidates for each hit of an index over bits; None for an index over half-precision vectors.
    """
    template = sql.SQL(statement("dense_by_bits") if oversampling else statement("dense_by_index"))
    search_statement = template.format(dimensions=sql.Literal(dimensions))

    def search(query: NDArray[np.float32]) -> list[Any]:
        vector = HalfVector(query.astype(np.float16))
        values = {**NO_FILTER, **scope, "vector": vector, "depth": DEPTH, "pool": DEPTH * (oversampling or 1)}
        rows = connection.execute(search_statement, values).fetchall()
        return [row[0] for row in sorted(rows, key=lambda row: (-row[1], row[0]))]

    return search


def measure_recall(
    search: SearchFunction, setting: int, queries: Sequence[NDArray[np.float32]], truth: list[list[Any]]
) -> Recall:
    """Return recall and median latency of a search.

    Args:
        setting: Its search setting, for the result.
        truth: Ids of the nearest chunks of each query, by an exact scan.
    """
    results, p50_ms = time_queries(search, queries)
    return summarise_recall(setting, results, truth, p50_ms)


def summarise_recall(setting: int, results: list[list[Any]], truth: list[list[Any]], p50_ms: float) -> Recall:
    """Return the mean recall of ranked results.

    Args:
        setting: The search setting of the results.
        results: Ids by query, the nearest first.
        truth: Ids of the nearest chunks by query, by an exact scan.
        p50_ms: Median latency of the searches.
    """
    at_10 = [_overlap(ids, nearest, 10) for ids, nearest in zip(results, truth, strict=True)]
    at_100 = [_overlap(ids, nearest, DEPTH) for ids, nearest in zip(results, truth, strict=True)]
    return Recall(
        setting=setting,
        recall_at_10=statistics.fmean(at_10),
        standard_error=statistics.stdev(at_10) / math.sqrt(len(at_10)) if len(at_10) > 1 else 0.0,
        recall_at_100=statistics.fmean(at_100),
        p50_ms=p50_ms,
    )


def time_queries(search: SearchFunction, queries: Sequence[NDArray[np.float32]]) -> tuple[list[list[Any]], float]:
    """Return the result of each query, and the median latency in milliseconds."""
    latencies_ms, results = [], []
    for query in queries:
        started = time.perf_counter()
        results.append(search(query))
        latencies_ms.append((time.perf_counter() - started) * 1000)
    return results, statistics.median(latencies_ms)


def _overlap(ids: list[Any], nearest: list[Any], k: int) -> float:
    relevant = set(nearest[:k])
    return len(relevant.intersection(ids[:k])) / len(relevant) if relevant else 1.0


def smallest_sufficient_setting(target: float, settings: list[int], measure: Callable[[int], Recall]) -> Recall:
    """Return the measurement of the smallest setting that reaches the target.

    Else that of the largest setting.

    Args:
        settings: Search settings, ascending; recall rises with them, so that a bisection finds the smallest.
    """
    low, high = 0, len(settings) - 1
    best = None
    while low <= high:
        middle = (low + high) // 2
        recall = measure(settings[middle])
        if recall.reaches(target):
            best, high = recall, middle - 1
        else:
            low = middle + 1
    return best or measure(settings[-1])
