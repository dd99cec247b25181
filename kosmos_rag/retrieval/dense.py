"""Dense retrieval: the nearest vectors to the embedding of the query.

They come from the vector index, or from an exact scan where that is faster or required.
"""

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, LiteralString

import psycopg
from pgvector import HalfVector
from psycopg import sql
from psycopg.types.json import Jsonb

from kosmos_rag.retrieval.fusion import CandidateList, rank_vectors
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import Snapshot
from kosmos_rag.storage.sql import statement

PREFILTER_SELECTIVITY = 1 / 10
"""If a filter keeps less than this share of the index, list its documents and score them exactly."""
MAX_PROBE_FACTOR = 10
"""Upper limit of the factor by which an index is searched further for a reader who sees a part of it."""
FILTER_OVERFETCH = {"ivfflat": 4, "hnsw": 2}
"""Factor on the rows requested from an index under a condition: the scan stops at the first rows that pass, and those
of the lists or of the part of the graph searched so far need not be the nearest."""
_MAX_FILTERED_DOCUMENTS = 1_000
_MAX_FILTERED_CHUNKS = 20_000
_CHUNKS_BY_ROOT = 20
"""Where a filter leaves more than this times the square root of the index's rows, the index is faster. To score a chunk
by key takes about 4 microseconds, and a row of the index that is tested against the filter 16: of N rows a filter that
leaves S takes 4 S in the one way, and 16 times 100 N / S in the other."""
_MAX_EF_SEARCH = 1_000
"""Limit of pgvector."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FilteredSet:
    """The documents that filter, collection and principals leave, if they are few."""

    document_ids: list[uuid.UUID]
    chunks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DensePlan:
    """A plan to find the nearest vectors: SQL statement and explanation."""

    name: str
    read: Mapping[str, int]
    """Rows, lists or `ef_search` of the scan."""
    text: LiteralString
    """The SQL statement."""
    values: Mapping[str, Any]
    """Values of the plan; the query adds its own."""
    index_options: Mapping[str, int] | None = None
    """`probes` and `ef_search` of an index scan; None for an exact one, which scores all vectors in question."""


def materialise_small_filter(
    connection: psycopg.Connection, query: RetrieverQuery, snapshot: Snapshot
) -> FilteredSet | None:
    """List the documents that pass the filter, if they are few.

    Few means that scoring each of them is cheaper than a search of the index.

    Costs a round trip, so it runs only where it may pay: with an index, and a filter or principals that exclude most.

    Args:
        connection: Of the snapshot.
        snapshot: State of the tenant.
    """
    indexed = snapshot.vector_index is not None or any(stats.segments for stats in snapshot.collections)
    selective = (
        snapshot.vector_index is not None
        and estimate_selectivity(snapshot, query.scope, query.principals) < PREFILTER_SELECTIVITY
    )
    if not indexed or not (query.scope["filtered"] or selective):
        return None
    groups = [*query.scope["term_groups"], *([[{"acl": list(query.principals)}]] if selective else [])]
    values = {
        **query.scope,
        "required": snapshot.required,
        "limit": _MAX_FILTERED_DOCUMENTS + 1,
        "term_groups": Jsonb(groups),
    }
    if groups:
        rows = connection.execute(statement("documents_by_terms"), values).fetchall()
        if rows[0][0] <= _MAX_FILTERED_DOCUMENTS:
            documents = [(document_id, chunks) for _, document_id, chunks in rows if document_id is not None]
            return _build_filtered_set(documents, snapshot)
        if query.scope["one_group"] or not query.scope["filtered"]:
            return None
    return _build_filtered_set(connection.execute(statement("filtered_documents"), values).fetchall(), snapshot)


def _build_filtered_set(rows: Sequence[tuple[uuid.UUID, int]], snapshot: Snapshot) -> FilteredSet | None:
    chunks = sum(row[1] for row in rows)
    most = _MAX_FILTERED_CHUNKS
    if snapshot.vector_index is not None:
        most = min(most, round(_CHUNKS_BY_ROOT * math.sqrt(snapshot.vector_index.rows)))
    if len(rows) > _MAX_FILTERED_DOCUMENTS or chunks > most:
        return None
    return FilteredSet(document_ids=[row[0] for row in rows], chunks=chunks)


def estimate_selectivity(snapshot: Snapshot, scope: Mapping[str, Any], principals: Sequence[str]) -> float:
    """Estimate the share of the index that a reader may read.

    Only the collection of the query counts. 1 if unknown.

    Args:
        snapshot: State of the tenant.
        scope: Bound values of the query.
    """
    index = snapshot.vector_index
    total = sum(index.acl.values()) if index is not None else 0
    if index is None or not total:
        return 1.0
    reader_principals = set(principals)
    visible = sum(count for acl, count in index.acl.items() if reader_principals.intersection(acl.split("\x1f")))
    in_collection = snapshot.total_chunks_unfiltered / index.rows if scope["collection"] is not None else 1.0
    return visible / total * min(1.0, in_collection)


def plan_dense(query: RetrieverQuery, snapshot: Snapshot, filtered: FilteredSet | None) -> DensePlan | None:
    """Choose how to find the nearest vectors.

    The result is None if the tenant has no vectors. Reads nothing from the database.

    Args:
        snapshot: State of the tenant.
        filtered: The documents that pass the filter, if they are few.
    """
    index = snapshot.vector_index
    if snapshot.space_id is None:
        return None
    if filtered is not None:
        return DensePlan(
            name="exact, by document",
            read={"rows": filtered.chunks},
            text=statement("dense_by_documents"),
            values={"document_ids": filtered.document_ids},
        )
    if index is None:
        return DensePlan(name="exact scan", read={"rows": snapshot.chunks}, text=statement("dense_exact"), values={})
    share = estimate_selectivity(snapshot, query.scope, query.principals)
    # A reader who sees a part of the index finds the nearest of that part in more lists.
    factor = min(MAX_PROBE_FACTOR, 1 / share) if share else MAX_PROBE_FACTOR
    probes = min(index.lists, math.ceil(index.probes * factor))
    ef_search = min(_MAX_EF_SEARCH, math.ceil(max(index.ef_search, query.candidates) * factor))
    conditional = query.scope["filtered"] or snapshot.required or share < 1
    depth = query.candidates * (FILTER_OVERFETCH[index.kind] if conditional else 1)
    read = {"ef_search": ef_search}
    if index.kind == "ivfflat":
        read = {"lists": probes, "rows_about": probes * index.rows // index.lists}
    return DensePlan(
        name=f"{index.kind} on bits" if index.oversampling else index.kind,
        read=read,
        text=statement("dense_by_bits") if index.oversampling else statement("dense_by_index"),
        values={"index_id": index.id, "pool": depth * (index.oversampling or 1), "depth": depth},
        index_options={"probes": probes, "ef_search": ef_search},
    )


@dataclass(kw_only=True, slots=True)
class DenseSearch:
    """One dense retrieval.

    `send` does not wait for its rows, so that other statements share the round trip.
    """

    connection: psycopg.Connection
    query: RetrieverQuery
    snapshot: Snapshot
    plan: DensePlan | None
    """None if the tenant has no vectors."""
    cursor: psycopg.Cursor[Any] | None = None
    """Of the statement that was sent."""

    def send(self) -> None:
        """Send the statement of the plan.

        The pipeline of the connection does not wait for its rows.
        """
        plan, vector = self.plan, self.query.vector
        assert vector is not None, "the dense retriever runs"
        if plan is None:
            return
        text: sql.SQL | sql.Composed = sql.SQL(plan.text)
        if plan.index_options is not None:
            self.connection.execute(statement("set_vector_search"), plan.index_options)
            self.connection.execute(statement("disable_sort"))
            self.connection.execute(statement("disable_jit"))
            text = sql.SQL(plan.text).format(dimensions=sql.Literal(len(vector)))
        values = {
            **self.query.scope,
            "required": self.snapshot.required,
            "vector": HalfVector(vector.astype("float16")),
            "depth": self.query.candidates,
            "space_id": self.snapshot.space_id,
            **plan.values,
        }
        self.cursor = self.connection.execute(text, values)
        if plan.index_options is not None:
            self.connection.execute(statement("enable_sort"))

    def receive(self) -> CandidateList:
        """Fetch the rows, and rank those above the similarity threshold."""
        query, plan = self.query, self.plan
        rows: Sequence[tuple[uuid.UUID, float]] = self.cursor.fetchall() if self.cursor else []
        # An index scan may stop early: fewer are returned only if there are no more.
        if plan is not None and plan.index_options is not None and len(rows) < query.candidates:
            exact = plan_dense(query, replace(self.snapshot, vector_index=None), None)
            assert exact is not None, "there are vectors"
            name = f"exact scan, for {plan.name} found {len(rows)} only"
            self.plan = plan = replace(exact, name=name, read={**plan.read, **exact.read})
            self.send()
            rows = self.cursor.fetchall() if self.cursor else []
        return rank_vectors(rows, query, plan.name if plan else "exact scan", plan.read if plan else {})
