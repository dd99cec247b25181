"""The dense leg: nearest vectors by the tenant's own index, and exactly where that is faster or needed."""

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector
from psycopg import sql

from kosmos_rag.retrieval.corpus import Snapshot, VectorIndex
from kosmos_rag.retrieval.legs import Leg, leg
from kosmos_rag.storage.sql import statement

_LITTLE = 1 / 10
"""Share of an index below which a reader's documents are looked up first, and the most that a search is widened by."""
_FEW_DOCUMENTS = 1_000
_FEW_CHUNKS = 20_000
_MAX_EF_SEARCH = 1_000
"""Bound of pgvector."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """The documents that a filter or a reader's principals leave, where they are few."""

    document_ids: list[uuid.UUID]
    chunks: int


def few_in_reach(
    connection: psycopg.Connection, scope: Mapping[str, Any], snapshot: Snapshot, principals: Sequence[str]
) -> Reach | None:
    """Return the documents in reach where they are few enough to be scored one by one; None where they are many.

    Looked up only where it may pay: an index exists, and a filter or the reader's principals leave out most of it.
    """
    index = snapshot.vector_index
    if index is None or not (scope["filtered"] or visible_share(index, principals) < _LITTLE):
        return None
    values = {**scope, "limit": _FEW_DOCUMENTS + 1}
    rows = connection.execute(statement("reach"), values).fetchall()
    chunks = sum(row[1] for row in rows)
    if len(rows) > _FEW_DOCUMENTS or chunks > _FEW_CHUNKS:
        return None
    return Reach(document_ids=[row[0] for row in rows], chunks=chunks)


def visible_share(index: VectorIndex, principals: Sequence[str]) -> float:
    """Return the share of the index that a reader may read, by what was counted when it was built; 1 if unknown."""
    total = sum(index.readers.values())
    if not total:
        return 1.0
    held = set(principals)
    visible = sum(count for readers, count in index.readers.items() if held.intersection(readers.split("\x1f")))
    return visible / total


class DenseLeg:
    """One question's dense leg. Sent first, then received: in between, other statements travel with it."""

    def __init__(
        self,
        connection: psycopg.Connection,
        scope: Mapping[str, Any],
        snapshot: Snapshot,
        vector: NDArray[np.float32],
        depth: int,
    ) -> None:
        self._connection = connection
        self._snapshot = snapshot
        self._depth = depth
        self._dimensions = len(vector)
        half = HalfVector(vector.astype(np.float16))
        self._values = {**scope, "vector": half, "depth": depth, "space_id": snapshot.space_id}
        self._cursor: psycopg.Cursor[Any] | None = None
        self._plan = "exact scan"
        self._read: dict[str, int] = {}

    def send(self, reach: Reach | None, principals: Sequence[str]) -> None:
        """Choose a plan and send its statement; in a pipeline nothing is waited for."""
        index = self._snapshot.vector_index
        if self._snapshot.space_id is None:
            return
        if reach is not None:
            self._plan, self._read = "exact, by document", {"rows": reach.chunks}
            values = {**self._values, "document_ids": reach.document_ids}
            self._cursor = self._connection.execute(statement("dense_of_documents"), values)
        elif index is None:
            self._send_exact()
        else:
            self._send_by_index(index, visible_share(index, principals))

    def _send_exact(self) -> None:
        self._read = {**self._read, "rows": self._snapshot.chunks}
        self._cursor = self._connection.execute(statement("dense_exact"), self._values)

    def _send_by_index(self, index: VectorIndex, share: float) -> None:
        # Where a reader sees a part only, the nearest that count lie in more lists.
        widened = 1 / max(share, _LITTLE)
        probes = min(index.lists, math.ceil(index.probes * widened))
        ef_search = min(_MAX_EF_SEARCH, math.ceil(max(index.ef_search, self._depth) * widened))
        pool = self._depth * (index.oversampling or 1)
        self._connection.execute(statement("search_vectors"), {"probes": probes, "ef_search": ef_search})
        self._plan = f"{index.kind} on bits" if index.oversampling else index.kind
        self._read = {"lists": probes} if index.kind == "ivfflat" else {"ef_search": ef_search}
        text = sql.SQL(statement("dense_by_bits") if index.oversampling else statement("dense_by_index"))
        query = text.format(dimensions=sql.Literal(self._dimensions))
        self._cursor = self._connection.execute(query, {**self._values, "index_id": index.id, "pool": pool})

    def receive(self, threshold: float) -> Leg:
        """Wait for what was sent, and rank; without those less similar than `threshold`."""
        rows = self._cursor.fetchall() if self._cursor else []
        if "rows" not in self._read and len(rows) < self._depth and self._cursor is not None:
            # An index may stop early; fewer than asked for are only given where there are no more.
            self._plan = f"exact scan, for {self._plan} found {len(rows)} only"
            self._send_exact()
            rows = self._cursor.fetchall()
        similar = [(chunk_id, float(score)) for chunk_id, score in rows if score >= threshold]
        reason = None
        if len(similar) < self._depth:
            dropped = len(rows) - len(similar)
            reason = f"{len(rows)} chunks in reach" + (
                f", {dropped} of them below similarity_threshold {threshold}" if dropped else ""
            )
        return leg(similar, depth=self._depth, plan=self._plan, read=self._read, reason=reason)
