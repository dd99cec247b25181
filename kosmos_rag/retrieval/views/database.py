"""The view of the database: one read-only transaction, whose snapshot is the state."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import numpy as np
import psycopg
from psycopg.rows import dict_row

from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.core.types import Space
from kosmos_rag.retrieval.arrange import Vectors
from kosmos_rag.retrieval.close_terms import CloseTermCache, match_words
from kosmos_rag.retrieval.dense import DenseSearch, materialise_small_filter, plan_dense
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL, CandidateList
from kosmos_rag.retrieval.hydrate import PassageRow, parse_passage_rows
from kosmos_rag.retrieval.lexical import LexicalSearch
from kosmos_rag.retrieval.postings import PostingsCache
from kosmos_rag.retrieval.pseudo_relevance import BEST, rank_similar
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import Snapshot, bind_texts, build_snapshot
from kosmos_rag.retrieval.views.base import BackgroundTask, ViewRequest, ViewUnavailable
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import SpaceStore


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseSession:
    """Reads in the transaction of a reader."""

    connection: psycopg.Connection
    tenant_id: UUID
    postings: PostingsCache
    close_terms: CloseTermCache | None
    """None to look up none."""
    timer: StageTimer

    def snapshot(self, wording: RetrieverQuery) -> Snapshot:
        """Read the state of the tenant in one round trip.

        Close terms that are not cached take more.
        """
        bound = bind_texts(wording)
        # Both statements are sent before the first result is fetched: the pipeline makes them one round trip.
        cursor = self.connection.execute(statement("search_state"), bound.values)
        required_cursor = None
        if bound.values["phrases"]:
            required_cursor = self.connection.execute(statement("required_terms"), bound.values)
        [(state,)] = cursor.fetchall()
        required = (required_cursor.fetchone() or (None,))[0] if required_cursor else None
        match = partial(match_words, self.connection, wording)
        return build_snapshot(wording, bound, state, self.close_terms, match, required=required)

    def find_space(self) -> Space | None:
        """Return the live embedding space."""
        return SpaceStore(self.connection, self.tenant_id).find_live()

    def candidates(self, wording: RetrieverQuery, snapshot: Snapshot) -> dict[str, CandidateList]:
        """Return the candidates of each retriever.

        The statements of both are sent in one round trip.
        """
        connection, timer, filtered = self.connection, self.timer, None
        # With everything unindexed there is nothing to plan.
        if wording.scope["filtered"] or snapshot.vector_index is not None:
            filtered = materialise_small_filter(connection, wording, snapshot)
        timer.record("plan")
        dense = lexical = None
        if wording.vector is not None:
            plan = plan_dense(wording, snapshot, filtered)
            dense = DenseSearch(connection=connection, query=wording, snapshot=snapshot, plan=plan)
            dense.send()
            # The server sends these rows once it has them: they are ranked while it scores words.
            connection.pgconn.send_flush_request()
        if wording.lexical:
            lexical = LexicalSearch(connection, wording, snapshot, filtered, self.postings)
        candidates: dict[str, CandidateList] = {}
        if dense is not None:
            candidates[DENSE] = dense.receive()
            timer.record(DENSE)
        if lexical is not None:
            candidates[LEXICAL] = lexical.receive()
            timer.record(LEXICAL)
        return candidates

    def compare_with_best(self, snapshot: Snapshot, chunk_ids: Sequence[UUID]) -> CandidateList:
        """Rank candidates by similarity to the mean of the first five."""
        values = {
            "tenant_id": self.tenant_id,
            "space_id": snapshot.space_id,
            "best": list(chunk_ids[:BEST]),
            "candidates": list(chunk_ids),
        }
        rows = self.connection.execute(statement("pseudo_relevance_feedback"), values).fetchall()
        # NULL if none of the best candidates has a vector.
        return rank_similar([(chunk_id, float(score)) for chunk_id, score in rows if score is not None], len(chunk_ids))

    def passages(self, _snapshot: Snapshot, chunk_ids: Sequence[UUID]) -> dict[int, PassageRow]:
        """Read the passages of candidates.

        Raises ViewUnavailable where the transaction has read two nodes.
        """
        cursor = self.connection.cursor(row_factory=dict_row)
        # As text: psycopg's adapter of lists asks for the type of each value.
        ids = "{" + ",".join([chunk_id.hex for chunk_id in chunk_ids]) + "}"
        cursor.execute(statement("passages"), {"tenant_id": self.tenant_id, "chunk_ids": ids})
        rows = parse_passage_rows(cursor.fetchall())
        if len(rows) < len(chunk_ids):
            raise ViewUnavailable
        return rows

    def vectors(self, snapshot: Snapshot, chunk_ids: Sequence[UUID]) -> Vectors:
        """Read the vectors of chunks in the live space."""
        if snapshot.space_id is None:
            return {}
        values = {"tenant_id": self.tenant_id, "space_id": snapshot.space_id, "chunk_ids": list(chunk_ids)}
        rows = self.connection.execute(statement("vectors_of_chunks"), values).fetchall()
        return {chunk_id: vector.to_numpy().astype(np.float32) for chunk_id, vector in rows}


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseView:
    """The view of the database, which can answer every search."""

    postings: PostingsCache
    """Cache of packed postings."""
    close_terms: CloseTermCache | None
    """Cache of close terms; None to look up none."""

    def can_answer(self, _request: ViewRequest) -> bool:
        """Return True. Args: see `SearchView`."""
        return True

    @contextmanager
    def open(self, request: ViewRequest, pool: ConnectionPool, timer: StageTimer) -> Iterator[DatabaseSession]:
        """Open a transaction of the reader. Args: see `SearchView`."""
        query = request.query
        with pool.transaction(query.tenant.id, query.principals) as connection:
            yield DatabaseSession(
                connection=connection,
                tenant_id=query.tenant.id,
                postings=self.postings,
                close_terms=self.close_terms,
                timer=timer,
            )

    def observe(self, _request: ViewRequest, _wording: RetrieverQuery, _snapshot: Snapshot) -> BackgroundTask | None:
        """Return None. Args: see `SearchView`."""
        return None
