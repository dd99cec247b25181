"""The two legs: what each asks the database, and how its answer becomes candidates with an account."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector
from psycopg.types.json import Jsonb

from kosmos_rag import bm25
from kosmos_rag.records import Candidate, Filter, LegAccount
from kosmos_rag.storage.sql import statement

DENSE, LEXICAL = "dense", "lexical"

_POOL = 4
"""The lexical leg scores this many times its depth exactly; more where that turns out too few."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Leg:
    """Candidates of one leg, best first, and what was done to find them."""

    candidates: tuple[Candidate, ...]
    account: LegAccount


def filter_values(given: Filter) -> dict[str, Any]:
    """Return a filter as bound values: the statements hold its conditions, switched on by `filtered`."""
    escaped = (
        source.rstrip("/").replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for source in given.sources
    )
    return {
        "filtered": bool(given.sources or given.metadata),
        "metadata": Jsonb(dict(given.metadata)),
        "sources": list(given.sources),
        "folders": [f"{source}/%" for source in escaped],
    }


class DenseLeg:
    """Nearest vectors by an exact scan of the tenant's own."""

    def __init__(self, scope: dict[str, Any], vector: NDArray[np.float32], depth: int) -> None:
        half = HalfVector(vector.astype(np.float16))
        self._values = {**scope, "vector": half, "dimensions": len(vector), "depth": depth}
        self._depth = depth

    def send(self, connection: psycopg.Connection) -> psycopg.Cursor[Any]:
        """Send the statement; in a pipeline nothing is waited for."""
        return connection.execute(statement("dense_exact"), self._values)

    def leg(self, rows: Sequence[tuple[Any, ...]], threshold: float) -> Leg:
        """Make candidates of the rows, without those less similar than `threshold`."""
        similar = [(chunk_id, float(score)) for chunk_id, score in rows if score >= threshold]
        reason = None
        if len(similar) < self._depth:
            dropped = len(rows) - len(similar)
            reason = f"{len(rows)} chunks in reach" + (
                f", {dropped} of them below similarity_threshold {threshold}" if dropped else ""
            )
        return _leg(similar, self._depth, reason)


class LexicalLeg:
    """BM25 by an exact scan of the tenant's chunks."""

    def __init__(self, scope: dict[str, Any], depth: int) -> None:
        self._values = {
            **scope,
            "depth": depth,
            "pool": depth * _POOL,
            "dimensions": bm25.DIMENSIONS,
            "k1": bm25.K1,
            "b": bm25.B,
        }
        self._depth = depth

    def send(self, connection: psycopg.Connection) -> psycopg.Cursor[Any]:
        """Send the statement; in a pipeline nothing is waited for."""
        return connection.execute(statement("lexical_exact"), self._values)

    def settled(self, connection: psycopg.Connection, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the rows, asked again with a larger pool for as long as a chunk outside it could belong in."""
        while rows and not self._is_exact(rows):
            self._values["pool"] *= _POOL
            rows = self.send(connection).fetchall()
        return rows

    def _is_exact(self, rows: list[tuple[Any, ...]]) -> bool:
        _, last_score, pooled, floor, drift = rows[-1]
        if pooled < self._values["pool"]:
            return True
        # The margin covers the single precision of the stored weights.
        return len(rows) == self._depth and last_score > floor * drift * (1 + 1e-5)

    def leg(self, rows: Sequence[tuple[Any, ...]], terms: Sequence[str]) -> Leg:
        """Make candidates of the rows."""
        reason = None
        if not terms:
            reason = "the question has no term to look up: stop words and signs only"
        elif len(rows) < self._depth:
            reason = f"{len(rows)} chunks in reach hold one of the {len(terms)} terms"
        return _leg([(row[0], float(row[1])) for row in rows], self._depth, reason)


def _leg(scored: Sequence[tuple[uuid.UUID, float]], depth: int, reason: str | None) -> Leg:
    return Leg(
        candidates=tuple(
            Candidate(chunk_id=chunk_id, score=score, rank=rank)
            for rank, (chunk_id, score) in enumerate(scored, start=1)
        ),
        account=LegAccount(asked=depth, returned=len(scored), plan="exact scan", reason=reason),
    )
