"""Recall of one live query: searched again by the vector index, and exactly.

Runs as the role that answers queries, as the reader of the query, in one read-only snapshot.
"""

import statistics
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection, sql

from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.core.types import Filter, Operators
from kosmos_rag.indexing.recall import DEPTH, Recall, nearest_neighbours, summarise_recall
from kosmos_rag.retrieval.filters import compile_filter
from kosmos_rag.retrieval.fusion import DENSE, CandidateList
from kosmos_rag.retrieval.postings import PostingsCache
from kosmos_rag.retrieval.query import ParsedQuery, RetrieverQuery
from kosmos_rag.retrieval.views.database import DatabaseSession
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement

_NO_TEXT = ParsedQuery(text="", operators=Operators())
"""Dense retrieval reads no text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexComparison:
    """One query, searched by the index and exactly."""

    by_index: list[uuid.UUID]
    nearest: list[tuple[uuid.UUID, float]]
    """The nearest chunks with their scores, by an exact scan."""
    incomplete: bool
    """Whether the index returned fewer hits than exist, so that the search fell back to a scan."""
    index_ms: float


def compare_with_exact(
    app: ConnectionPool,
    tenant_id: uuid.UUID,
    principals: Sequence[str],
    collection: str | None,
    vector: NDArray[np.float32],
    *,
    statement_timeout_ms: int,
) -> IndexComparison | None:
    """Search a query vector by the index and exactly.

    The result is None if no index covers it any more.

    Args:
        app: Connections of the role that answers queries.
        collection: The collection of the query; None for all.
        vector: The query vector, of shape (dimensions,).
        statement_timeout_ms: Time limit of a statement.

    Raises DatabaseUnavailable, and StatementFailed for a statement that the server cancels.
    """
    query = RetrieverQuery(
        fuzzy=False,
        scope={"tenant_id": tenant_id, "collection": collection, **compile_filter(Filter())},
        principals=tuple(principals),
        parsed=_NO_TEXT,
        texts={},
        vector=vector,
        lexical=False,
        candidates=DEPTH,
        similarity_threshold=-1.0,
        use_vector_index=True,
    )
    with app.transaction(tenant_id, principals) as connection:
        _limit_resources(connection, statement_timeout_ms)
        session = DatabaseSession(
            connection=connection,
            tenant_id=tenant_id,
            postings=PostingsCache(0),
            close_terms=None,
            timer=StageTimer(),
        )
        snapshot = session.snapshot(query)
        if snapshot.vector_index is None:
            return None
        started = time.perf_counter()
        dense = session.candidates(query, snapshot)[DENSE]
        index_ms = (time.perf_counter() - started) * 1000
        scope = {"tenant_id": tenant_id, "space_id": snapshot.space_id, "collection": collection}
        nearest = nearest_neighbours(connection, scope, vector)
    return IndexComparison(
        by_index=[candidate.chunk_id for candidate in dense.candidates],
        nearest=nearest,
        incomplete=_is_incomplete(dense, len(nearest)),
        index_ms=index_ms,
    )


def _limit_resources(connection: Connection, statement_timeout_ms: int) -> None:
    connection.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(statement_timeout_ms)))
    connection.execute(statement("disable_parallel_query"))


def _is_incomplete(dense: CandidateList, existing: int) -> bool:
    return dense.explain.plan.startswith("exact scan, for") or len(dense.candidates) < existing


def summarise_comparisons(comparisons: Sequence[IndexComparison]) -> Recall:
    """Return the mean recall of comparisons that have neighbours; one at least."""
    return summarise_recall(
        0,
        [comparison.by_index for comparison in comparisons],
        [[chunk_id for chunk_id, _ in comparison.nearest] for comparison in comparisons],
        statistics.median(comparison.index_ms for comparison in comparisons),
    )
