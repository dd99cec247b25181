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

from kosmos_rag.retrieval.candidates import Leg, leg
from kosmos_rag.retrieval.snapshot import Snapshot, VectorIndex
from kosmos_rag.storage.sql import statement

_LOOKED_UP = 1 / 10
"""Share of an index below which the documents in reach are looked up first."""
_WIDEST = 10
"""How many times further an index is searched at most for a reader who sees a part of it."""
_DEEPER = 4
"""How many times more rows an index is asked for where a condition leaves some out: it stops at the first that pass,
and those of the lists it has searched need not be the nearest."""
_FEW_DOCUMENTS = 1_000
_FEW_CHUNKS = 20_000
_MAX_EF_SEARCH = 1_000
"""Bound of pgvector."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """The documents that a filter, a collection or a reader's principals leave, where they are few."""

    document_ids: list[uuid.UUID]
    chunks: int


def few_in_reach(
    connection: psycopg.Connection, scope: Mapping[str, Any], snapshot: Snapshot, principals: Sequence[str]
) -> Reach | None:
    """Return the documents in reach where they are few enough to be scored one by one; None where they are many.

    Looked up only where it may pay: there are indexes, and a filter or the reader's principals leave out most of them.
    """
    indexed = snapshot.vector_index is not None or any(corpus.segments for corpus in snapshot.corpora)
    little = snapshot.vector_index is not None and share_in_reach(snapshot, scope, principals) < _LOOKED_UP
    if not indexed or not (scope["filtered"] or little):
        return None
    values = {**scope, "limit": _FEW_DOCUMENTS + 1}
    rows = connection.execute(statement("filtered_documents"), values).fetchall()
    chunks = sum(row[1] for row in rows)
    if len(rows) > _FEW_DOCUMENTS or chunks > _FEW_CHUNKS:
        return None
    return Reach(document_ids=[row[0] for row in rows], chunks=chunks)


def share_in_reach(snapshot: Snapshot, scope: Mapping[str, Any], principals: Sequence[str]) -> float:
    """Estimate the share of the vector index that a reader may read in the collection; 1 if nothing is known."""
    index = snapshot.vector_index
    total = sum(index.acl.values()) if index is not None else 0
    if index is None or not total:
        return 1.0
    held = set(principals)
    visible = sum(count for readers, count in index.acl.items() if held.intersection(readers.split("\x1f")))
    of_collection = snapshot.total / index.rows if scope["collection"] is not None else 1.0
    return visible / total * min(1.0, of_collection)


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
            self._cursor = self._connection.execute(statement("dense_by_documents"), values)
        elif index is None:
            self._send_exact()
        else:
            self._send_by_index(index, share_in_reach(self._snapshot, self._values, principals))

    def _send_exact(self) -> None:
        self._read = {**self._read, "rows": self._snapshot.chunks}
        self._cursor = self._connection.execute(statement("dense_exact"), self._values)

    def _send_by_index(self, index: VectorIndex, share: float) -> None:
        # Where a reader sees a part only, the nearest that count lie in more lists.
        widened = min(_WIDEST, 1 / share) if share else _WIDEST
        probes = min(index.lists, math.ceil(index.probes * widened))
        ef_search = min(_MAX_EF_SEARCH, math.ceil(max(index.ef_search, self._depth) * widened))
        left_out = self._values["filtered"] or self._values["required"] or share < 1
        depth = self._depth * (_DEEPER if left_out else 1)
        pool = depth * (index.oversampling or 1)
        self._connection.execute(statement("set_vector_search"), {"probes": probes, "ef_search": ef_search})
        self._plan = f"{index.kind} on bits" if index.oversampling else index.kind
        self._read = {"ef_search": ef_search}
        if index.kind == "ivfflat":
            self._read = {"lists": probes, "rows_about": probes * index.rows // index.lists}
        text = sql.SQL(statement("dense_by_bits") if index.oversampling else statement("dense_by_index"))
        query = text.format(dimensions=sql.Literal(self._dimensions))
        self._cursor = self._connection.execute(
            query, {**self._values, "index_id": index.id, "pool": pool, "depth": depth}
        )

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
