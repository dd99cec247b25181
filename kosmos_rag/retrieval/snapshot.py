"""What a retrieval knows of its collections before it plans: statistics, terms and indexes, of one snapshot."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from kosmos_rag.core.text import bm25
from kosmos_rag.core.types import ExperimentMode, RunningExperiment
from kosmos_rag.storage.sql import statement


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """Packed postings of the chunks with serials up to, not with, `last`, from where the segment before ends."""

    id: uuid.UUID
    last: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """One collection of one tenant, as one question of one reader sees it.

    Statistics are of the chunks that this reader may read: those of others move no score and no count.
    """

    collection: str
    chunks: int
    """How many this reader may read."""
    average: float
    """Mean length of those, in lexemes."""
    next_sequence: int
    epoch: int
    """Raised by each transaction that changes documents which this reader may read."""
    weights: Mapping[int, float]
    """Inverse document frequency of what is asked for, times what it counts for, by lexeme id, ascending."""
    segments: tuple[Segment, ...]
    preset: str | None = None
    """Whose settings it goes by, where it goes by others than the tenant's."""

    @property
    def tail(self) -> int:
        """How many chunks no segment holds, at most."""
        covered = self.segments[-1].last if self.segments else 1
        return min(self.chunks, self.next_sequence - covered)


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorIndex:
    """The tenant's own index over its live space."""

    id: uuid.UUID
    kind: str
    oversampling: int | None
    """Of an index of one bit a dimension: candidates to score again with their vectors, for each hit wanted."""
    probes: int
    lists: int
    ef_search: int
    rows: int
    """When it was built."""
    acl: Mapping[str, int]
    """How many of them each list of readers may read; the names of a list are joined by a unit separator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The tenant at the moment of the question."""

    space_id: uuid.UUID | None
    corpora: tuple[Corpus, ...]
    terms: frozenset[str]
    """What is asked for, analysed in the languages of all collections that may answer."""
    required: str | None
    """What a chunk must hold, as a tsquery; None where the question requires nothing."""
    vector_index: VectorIndex | None
    total: int
    """Chunks of the collections, readable or not: to plan with, and not to be told."""
    enforced: bool
    """Whether the preset of one of the collections has departments decide who may read."""
    audit: tuple[Mapping[str, Any], ...]
    """What presets of the collections set of `rag.audit`."""
    experiment: RunningExperiment | None = None
    """What runs for questions to these collections."""

    @property
    def chunks(self) -> int:
        """How many of them this reader may read."""
        return sum(corpus.chunks for corpus in self.corpora)

    @property
    def whole(self) -> bool:
        """Whether the reader may read all of them."""
        return self.chunks == self.total


def look(
    connection: psycopg.Connection, scope: Mapping[str, Any], words: Mapping[str, Any], *, use_vector_index: bool
) -> Snapshot:
    """Read the snapshot in one round trip. `scope` names tenant and collection, `words` what the question says."""
    values = {**scope, **words}
    corpora = connection.execute(statement("search_snapshot"), values)
    terms = connection.execute(statement("query_terms"), values)
    required = connection.execute(statement("required_terms"), values) if words["phrases"] else None
    indexes = connection.execute(statement("ready_indexes"), values)
    rows = terms.fetchall()
    ready = indexes.fetchall()
    every = corpora.fetchall()
    readable = [row for row in every if row[5] is not None]
    space_id = readable[0][3] if readable else None
    return Snapshot(
        space_id=space_id,
        corpora=tuple(_corpora(readable, rows, ready)),
        terms=frozenset(lexeme for _, lexeme, *_ in rows),
        required=(required.fetchone() or (None,))[0] if required else None,
        vector_index=_vector_index(
            row for row in ready if use_vector_index and row[1] != "segment" and row[3] == space_id
        ),
        total=sum(row[1] or 0 for row in every),
        enforced=any(row[8] for row in every),
        audit=tuple(every[0][9]) if every else (),
        experiment=_experiment(every[0][10]) if every else None,
    )


def _experiment(told: Mapping[str, Any] | None) -> RunningExperiment | None:
    if told is None:
        return None
    return RunningExperiment(**{**told, "id": uuid.UUID(told["id"]), "mode": ExperimentMode(told["mode"])})


def _corpora(
    corpora: Iterable[tuple[Any, ...]], terms: list[tuple[Any, ...]], ready: list[tuple[Any, ...]]
) -> Iterable[Corpus]:
    for collection, _, next_sequence, _, preset, chunks, length, epoch, *_ in corpora:
        yield Corpus(
            collection=collection,
            chunks=chunks,
            average=max(length, 1) / max(chunks, 1),
            next_sequence=next_sequence,
            epoch=epoch,
            weights={
                lexeme_id: bm25.inverse_document_frequency(chunks, holding) * weight
                for where, _, lexeme_id, holding, weight in terms
                if where == collection and lexeme_id is not None
            },
            segments=tuple(
                Segment(id=row[0], last=row[4]) for row in ready if row[1] == "segment" and row[2] == collection
            ),
            preset=preset,
        )


def _vector_index(ready: Iterable[tuple[Any, ...]]) -> VectorIndex | None:
    row = next(iter(ready), None)
    if row is None:
        return None
    settings, rows, health = row[5:]
    missed = health.get("recall_at_10", 1.0) < health.get("recall_target", 0.0)
    if missed and health["p50_ms"] > health["exact_p50_ms"]:
        return None  # measured to find less than it should, and to be slower than the scan that finds all
    return VectorIndex(
        id=row[0],
        kind=row[1],
        oversampling=settings.get("oversampling"),
        probes=settings.get("probes", 1),
        lists=settings.get("lists", 1),
        ef_search=settings.get("ef_search", 40),
        rows=rows,
        acl=health.get("readers", {}),
    )
