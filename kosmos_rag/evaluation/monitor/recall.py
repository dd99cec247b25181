"""Recall of live queries: samples searched again, by index and exactly.

Runs as the role that answers queries, as the reader of the sample, in one read-only snapshot a sample, on one
connection, and pauses after each sample as long as the sample took.
"""

import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection, sql

from kosmos_rag.core.config import MonitorSettings
from kosmos_rag.core.errors import DatabaseUnavailable, StatementFailed
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
from kosmos_rag.storage.tenants import TenantRef

_NO_TEXT = ParsedQuery(text="", operators=Operators())
"""Dense retrieval reads no text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A live query: its vector, collection and reader."""

    id: uuid.UUID
    collection: str | None
    principals: tuple[str, ...]
    vector: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Comparison:
    """One sample, searched by the index and exactly."""

    by_index: list[Any]
    nearest: list[tuple[uuid.UUID, float]]
    incomplete: bool
    index_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveRecall:
    """Recall of a run over live samples."""

    recall: Recall | None
    """None if no sample could be searched."""
    samples: int
    """Number of samples that were searched and have neighbours."""
    timed_out: int
    """Number of samples whose search reached the statement timeout."""
    incomplete: int
    """Number of samples for which the index returned fewer hits than exist, so that the search fell back to a scan."""
    scores: tuple[float, ...]
    """The best score of each sample, ascending."""
    milliseconds: float


def measure_live_recall(
    app: ConnectionPool,
    owner: TenantRef,
    samples: Sequence[Sample],
    settings: MonitorSettings,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> LiveRecall:
    """Search samples again, by the index and exactly.

    Args:
        app: Connections of the role that answers queries.
        owner: The tenant.
        samples: Live queries of that tenant.
        settings: The statement timeout.
        pause: Waits that many seconds after each sample.

    Raises DatabaseUnavailable; a statement that the server cancels is counted.
    """
    comparisons, timed_out, elapsed_s = [], 0, 0.0
    for sample in samples:
        started = time.perf_counter()
        try:
            comparisons.append(_compare(app, owner, sample, settings))
        except DatabaseUnavailable:
            raise
        except StatementFailed:
            timed_out += 1
        sample_s = time.perf_counter() - started
        elapsed_s += sample_s
        pause(sample_s)
    measured = [comparison for comparison in comparisons if comparison is not None and comparison.nearest]
    recall = None
    if measured:
        recall = summarise_recall(
            0,
            [comparison.by_index for comparison in measured],
            [[chunk_id for chunk_id, _ in comparison.nearest] for comparison in measured],
            statistics.median(comparison.index_ms for comparison in measured),
        )
    return LiveRecall(
        recall=recall,
        samples=len(measured),
        timed_out=timed_out,
        incomplete=sum(comparison.incomplete for comparison in measured),
        scores=tuple(sorted(comparison.nearest[0][1] for comparison in measured)),
        milliseconds=round(elapsed_s * 1000, 1),
    )


def _compare(app: ConnectionPool, owner: TenantRef, sample: Sample, settings: MonitorSettings) -> _Comparison | None:
    """Search one sample both ways in one snapshot.

    None if no index covers it any more.
    """
    query = RetrieverQuery(
        fuzzy=False,
        scope={"tenant_id": owner.id, "collection": sample.collection, **compile_filter(Filter())},
        principals=sample.principals,
        parsed=_NO_TEXT,
        texts={},
        vector=sample.vector,
        lexical=False,
        candidates=DEPTH,
        similarity_threshold=-1.0,
        use_vector_index=True,
    )
    with app.transaction(owner.id, sample.principals) as connection:
        _limit_resources(connection, settings)
        session = DatabaseSession(
            connection=connection,
            tenant_id=owner.id,
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
        scope = {"tenant_id": owner.id, "space_id": snapshot.space_id, "collection": sample.collection}
        nearest = nearest_neighbours(connection, scope, sample.vector)
    return _Comparison(
        by_index=[candidate.chunk_id for candidate in dense.candidates],
        nearest=nearest,
        incomplete=_is_incomplete(dense, len(nearest)),
        index_ms=index_ms,
    )


def _limit_resources(connection: Connection, settings: MonitorSettings) -> None:
    connection.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(settings.statement_timeout_ms)))
    connection.execute(statement("disable_parallel_query"))


def _is_incomplete(dense: CandidateList, existing: int) -> bool:
    return dense.explain.plan.startswith("exact scan, for") or len(dense.candidates) < existing
