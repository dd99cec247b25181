"""Samples of live questions searched again, as their readers and as questions are: by the index, and exactly.

As the role that answers questions, in read-only transactions of one connection, with pauses as long as the work.
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
from kosmos_rag.indexing import recall as tuning
from kosmos_rag.retrieval.candidates import DENSE, Leg
from kosmos_rag.retrieval.postings import PostingsCache
from kosmos_rag.retrieval.query import request
from kosmos_rag.retrieval.search import Search
from kosmos_rag.retrieval.timer import Watch
from kosmos_rag.storage.pool import Role
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

_ANY = request("any", k=10, filter=None, max_chars=10)
"""What a search has to have and the dense leg does not look at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A question that was asked: its vector, where, and by whom."""

    id: uuid.UUID
    collection: str | None
    principals: tuple[str, ...]
    vector: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    by_index: list[Any]
    nearest: list[tuple[uuid.UUID, float]]
    short: bool
    index_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Remeasured:
    """What samples found this time."""

    recall: tuning.Measured | None
    """None where none of them could be searched."""
    samples: int
    """How many were searched, and had something to find."""
    given_up: int
    """How many of the others took longer than they may."""
    short: int
    """For how many the index gave fewer hits than there are, so that all was scanned in its place."""
    scores: tuple[float, ...]
    """The best score of each, ascending."""
    milliseconds: float


def remeasure(
    app: Role,
    owner: TenantRef,
    samples: Sequence[Sample],
    settings: MonitorSettings,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Remeasured:
    """Search samples again. Raises DatabaseUnavailable; what the server refuses for its time is counted."""
    found, given_up, took_s = [], 0, 0.0
    for sample in samples:
        started = time.perf_counter()
        try:
            found.append(_searched(app, owner, sample, settings))
        except DatabaseUnavailable:
            raise
        except StatementFailed:
            given_up += 1
        spent_s = time.perf_counter() - started
        took_s += spent_s
        pause(spent_s)
    looked = [one for one in found if one is not None and one.nearest]
    truth = [[chunk_id for chunk_id, _ in one.nearest] for one in looked]
    recall = None
    if looked:
        p50_ms = statistics.median(one.index_ms for one in looked)
        recall = tuning.summary(0, [one.by_index for one in looked], truth, p50_ms)
    return Remeasured(
        recall=recall,
        samples=len(looked),
        given_up=given_up,
        short=sum(one.short for one in looked),
        scores=tuple(sorted(one.nearest[0][1] for one in looked)),
        milliseconds=round(took_s * 1000, 1),
    )


def _searched(app: Role, owner: TenantRef, sample: Sample, settings: MonitorSettings) -> _Found | None:
    """Search one sample both ways in one snapshot; None where no index answers it any more."""
    search = Search(
        tenant=owner,
        principals=sample.principals,
        collection=sample.collection,
        request=_ANY,
        texts={},
        vector=sample.vector,
        lexical=False,
        depth=tuning.DEPTH,
        similarity_threshold=-1.0,
        use_vector_index=True,
    )
    with app.transaction(owner.id, sample.principals) as connection:
        _be_modest(connection, settings)
        snapshot = search.look(connection)
        if snapshot.vector_index is None:
            return None
        started = time.perf_counter()
        leg = search.run(connection, snapshot, PostingsCache(0), Watch())[DENSE]
        index_ms = (time.perf_counter() - started) * 1000
        scope = {"tenant_id": owner.id, "space_id": snapshot.space_id, "collection": sample.collection}
        nearest = tuning.nearest(connection, scope, sample.vector)
    return _Found(
        by_index=[candidate.chunk_id for candidate in leg.candidates],
        nearest=nearest,
        short=_came_short(leg, len(nearest)),
        index_ms=index_ms,
    )


def _be_modest(connection: Connection, settings: MonitorSettings) -> None:
    connection.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(settings.statement_timeout_ms)))
    connection.execute(statement("disable_parallel_query"))


def _came_short(leg: Leg, there: int) -> bool:
    return leg.explain.plan.startswith("exact scan, for") or len(leg.candidates) < there
