"""Lexical retrieval: exact BM25 over packed segments and chunks outside them.

Both parts score approximately first, then exactly what could belong to the result. Since a segment was packed, a chunk
may have been deleted or hidden from this reader: the best are looked up under row-level security, best first, until
enough are visible.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg
from pgvector import SparseVector

from kosmos_rag.core.text import bm25
from kosmos_rag.retrieval.dense import FilteredSet
from kosmos_rag.retrieval.fusion import CandidateList, rank_scores
from kosmos_rag.retrieval.postings import (
    CHUNKS,
    MARGIN,
    Posting,
    PostingsCache,
    PostingsRequest,
    SegmentScores,
    best_offsets,
)
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import CollectionStats, Snapshot
from kosmos_rag.storage.binary import array, sparse_entries
from kosmos_rag.storage.sql import statement

_GROWTH = 4
"""Factor on the rows of the next fetch, while fewer than needed were found."""


class LexicalSearch:
    """One lexical retrieval. Sent when created, fetched by `receive`."""

    def __init__(
        self,
        connection: psycopg.Connection,
        query: RetrieverQuery,
        snapshot: Snapshot,
        filtered: FilteredSet | None,
        cache: PostingsCache,
    ) -> None:
        """Send what the database is asked for.

        Args:
            connection: Of the snapshot.
            snapshot: State of the tenant.
            filtered: The documents that pass the filter, if they are few.
            cache: Of packed postings.
        """
        self._connection = connection
        self._scope = scope = {**query.scope, "required": snapshot.required}
        self._limit = query.candidates
        self._snapshot = snapshot
        collections = [stats for stats in snapshot.collections if stats.weights]
        self._scans = []
        self._unindexed_rows = 0
        for stats in collections:
            # Chunks outside all segments, at most.
            first = stats.segments[-1].last if stats.segments else 1
            if rows := min(stats.chunks, stats.next_sequence - first):
                self._unindexed_rows += rows
                pool = self._limit + self._limit // 2
                scan = _UnindexedScan(connection=connection, scope=scope, stats=stats, limit=self._limit, pool=pool)
                self._scans.append(scan)
        for scan in self._scans:
            scan.send()
        self._requests = [
            (stats, PostingsRequest(connection, scope["tenant_id"], segment.id, stats.weights, cache))
            for stats in collections
            for segment in stats.segments
        ]
        self._filtered: psycopg.Cursor[Any] | None = None
        if filtered is not None and self._requests:
            values = {**scope, "document_ids": filtered.document_ids}
            self._filtered = connection.execute(statement("sequences_of_documents"), values)

    def receive(self) -> CandidateList:
        """Rank what was sent for."""
        segments = [_score_segment(stats, request.fetch()) for stats, request in self._requests]
        if self._filtered is not None:
            passing = self._filtered.fetchall()
            for segment in segments:
                segment.restrict([sequence for collection, sequence in passing if collection == segment.collection])
        scores, candidates = self._best_visible(segments) if segments else ([], 0)
        for scan in self._scans:
            scores += scan.best([score for _, score in scores])
        plan = "exact scan"
        if segments:
            plan = "segments, exact scan of the rest" if self._scans else "segments"
        read = {
            "rows": self._unindexed_rows,
            "segments": len(segments),
            "postings": sum(len(segment.postings.offsets) for segment in segments),
            "candidates": candidates,
        }
        return rank_scores(scores, self._limit, self._snapshot, plan, read)

    def _best_visible(self, segments: list[SegmentScores]) -> tuple[list[tuple[uuid.UUID, float]], int]:
        """Return the best chunks of the segments that the reader may read.

        The second value is the number of chunks that were looked up.
        """
        visible: list[tuple[uuid.UUID, float]] = []
        looked_up, target = 0, self._limit + self._limit // 4
        while any(segment.terms for segment in segments):
            segment_numbers, offsets = best_offsets(segments, target)
            lookups = []
            for number, segment in enumerate(segments):
                new = offsets[looked_up:][segment_numbers[looked_up:] == number]
                if len(new):
                    sequences = segment.chunks.offsets[new]
                    bound = array(self._connection, "int4", sequences)
                    values = {**self._scope, "collection": segment.collection, "sequences": bound}
                    cursor = self._connection.cursor(binary=True).execute(statement("visible_chunks"), values)
                    lookups.append((segment, new, sequences, cursor))
            for segment, new, sequences, cursor in lookups:
                exact = dict(zip(sequences.tolist(), segment.exact(new).tolist(), strict=True))
                visible += [(chunk_id, exact[sequence]) for sequence, chunk_id in cursor.fetchall()]
            looked_up = len(offsets)
            if len(visible) >= self._limit or looked_up < target:
                break
            target = looked_up * _GROWTH
        return visible, looked_up


@dataclass(kw_only=True, slots=True)
class _UnindexedScan:
    """BM25 scan of the chunks of one collection outside all segments.

    `send` does not wait for its rows.
    """

    connection: psycopg.Connection
    scope: Mapping[str, Any]
    """Bound values of the query, with its condition on chunks."""
    stats: CollectionStats
    limit: int
    """Chunks of the result."""
    pool: int
    """Rows to request; they are ordered by an upper bound of their score."""
    cursor: psycopg.Cursor[Any] = field(init=False)

    def send(self) -> None:
        """Send the statement; the pipeline of the connection does not wait."""
        weights = {lexeme_id - 1: weight for lexeme_id, weight in self.stats.weights.items()}
        values = {
            **self.scope,
            "collection": self.stats.collection,
            "weights": SparseVector(weights, bm25.DIMENSIONS),
            "average": self.stats.average,
            "k1": bm25.K1,
            "b": bm25.B,
            "stored_b": bm25.STORED_B,
            "pool": self.pool,
        }
        self.cursor = self.connection.cursor(binary=True).execute(statement("unsegmented_scan"), values)

    def best(self, segment_scores: Sequence[float]) -> list[tuple[uuid.UUID, float]]:
        """Return exact scores of the chunks that may be among the best.

        More rows are fetched while one beyond them could belong.

        Args:
            segment_scores: scores of chunks in segments.
        """
        while True:
            rows = self.cursor.fetchall()
            scores = self._score(rows)
            if len(rows) < self.pool:
                return scores
            top_scores = sorted([*segment_scores, *(score for _, score in scores)], reverse=True)[: self.limit]
            if len(top_scores) == self.limit and top_scores[-1] > rows[-1][4] * (1 + MARGIN):
                return scores
            self.pool *= _GROWTH
            self.send()

    def _score(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[uuid.UUID, float]]:
        """Score the rows with the current average length.

        Their term frequencies are derived from the stored weights.
        """
        entries = sparse_entries([row[3] for row in rows])
        lengths = np.array([row[1] for row in rows], dtype=np.float64)
        pivots = np.array([row[2] for row in rows], dtype=np.float64)
        ids = np.fromiter(self.stats.weights, dtype=np.int64)
        query_weights = np.fromiter(self.stats.weights.values(), dtype=np.float64)
        positions = np.minimum(np.searchsorted(ids, entries.lexeme_ids), len(ids) - 1)
        matches = ids[positions] == entries.lexeme_ids
        of_row = entries.rows[matches]
        stored = bm25.norms(lengths, pivots, bm25.STORED_B)[of_row]
        frequencies = bm25.frequencies(entries.values[matches], stored)
        norms = bm25.norms(lengths, self.stats.average)[of_row]
        weights = bm25.contributions(frequencies, norms, query_weights[positions[matches]])
        order = np.argsort(weights, kind="stable")  # the order of summation of `SegmentScores.exact`
        scores = np.bincount(of_row[order], weights=weights[order], minlength=len(rows))
        return list(zip([row[0] for row in rows], scores.tolist(), strict=True))


def _score_segment(stats: CollectionStats, postings: Mapping[int, Posting]) -> SegmentScores:
    terms = ((weight, postings[lexeme_id]) for lexeme_id, weight in stats.weights.items())
    return SegmentScores.from_postings(stats.collection, postings[CHUNKS], stats.average, terms)
