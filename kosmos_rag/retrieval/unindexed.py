"""The part of the lexical leg that scans: the chunks of one collection that no segment holds yet."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import psycopg
from pgvector import SparseVector

from kosmos_rag.core.text import bm25
from kosmos_rag.retrieval.postings import MARGIN
from kosmos_rag.retrieval.snapshot import Corpus
from kosmos_rag.storage.binary import sparse_entries
from kosmos_rag.storage.sql import statement

_GROWTH = 4


class TailScan:
    """One question's scan of the tail. Sent at once, then received: in between, other statements travel with it."""

    def __init__(self, connection: psycopg.Connection, scope: Mapping[str, Any], corpus: Corpus, depth: int) -> None:
        self._connection = connection
        self._corpus = corpus
        self._depth = depth
        self._values = {
            **scope,
            "collection": corpus.collection,
            "weights": SparseVector({key - 1: weight for key, weight in corpus.weights.items()}, bm25.DIMENSIONS),
            "average": corpus.average,
            "pool": depth + depth // 2,
        }
        self._cursor = self._send()

    def _send(self) -> psycopg.Cursor[Any]:
        return self._connection.cursor(binary=True).execute(statement("unsegmented_scan"), self._values)

    def best(self, others: Sequence[float]) -> dict[uuid.UUID, float]:
        """Return the exact scores of the best chunks, as far as they may stand among the first `depth` with `others`.

        The rows come by an upper bound of their score: while one beyond them could belong, more are asked for.
        """
        while True:
            rows = self._cursor.fetchall()
            scored = self._scored(rows)
            ranked = sorted((*others, *scored.values()), reverse=True)[: self._depth]
            complete = len(rows) < self._values["pool"]
            if complete or (len(ranked) == self._depth and ranked[-1] > rows[-1][4] * (1 + MARGIN)):
                return scored
            self._values["pool"] *= _GROWTH
            self._cursor = self._send()

    def _scored(self, rows: Sequence[tuple[Any, ...]]) -> dict[uuid.UUID, float]:
        """Solve the frequencies out of the stored weights, and weigh them with today's average."""
        entries = sparse_entries([row[3] for row in rows])
        lengths = np.array([row[1] for row in rows], dtype=np.float64)
        pivots = np.array([row[2] for row in rows], dtype=np.float64)
        ids = np.fromiter(self._corpus.weights, dtype=np.int64)
        asked_weights = np.fromiter(self._corpus.weights.values(), dtype=np.float64)
        at = np.minimum(np.searchsorted(ids, entries.lexeme_ids), len(ids) - 1)
        asked = ids[at] == entries.lexeme_ids
        of_row = entries.rows[asked]
        frequencies = bm25.frequencies(entries.values[asked], bm25.norms(lengths, pivots)[of_row])
        norms = bm25.norms(lengths, self._corpus.average)[of_row]
        weights = bm25.contributions(frequencies, norms, asked_weights[at[asked]])
        order = np.argsort(weights, kind="stable")  # added as `SegmentScores.exact` adds them
        scores = np.bincount(of_row[order], weights=weights[order], minlength=len(rows))
        return {row[0]: score for row, score in zip(rows, scores.tolist(), strict=True)}
