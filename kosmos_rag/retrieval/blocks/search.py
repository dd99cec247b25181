"""Search the vectors and postings of a block.

The candidates are those of exact scans, to the last bit.
"""

from collections.abc import Mapping
from uuid import UUID

from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.retrieval.blocks.block import Block, CollectionPostings, VectorBlock
from kosmos_rag.retrieval.dense import rank_vectors
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL, CandidateList
from kosmos_rag.retrieval.lexical import best_offsets, rank_scores
from kosmos_rag.retrieval.postings import SegmentScores
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import Snapshot

PLAN = "exact, in memory"


def search_block(
    query: RetrieverQuery, snapshot: Snapshot, block: Block, timer: StageTimer
) -> dict[str, CandidateList]:
    """Return the candidates of each retriever whose data the block has.

    Args:
        query: What is searched for.
        snapshot: State of the tenant.
        block: Of this state, filter and reader.
        timer: Timer of the search.
    """
    lists: dict[str, CandidateList] = {}
    if block.vectors is not None and query.vector is not None:
        lists[DENSE] = _search_vectors(query, block.vectors)
        timer.record(DENSE)
    if block.postings is not None and query.lexical:
        lists[LEXICAL] = _search_postings(query, snapshot, block.postings)
        timer.record(LEXICAL)
    return lists


def _search_vectors(query: RetrieverQuery, vectors: VectorBlock) -> CandidateList:
    assert query.vector is not None, "compared by the caller"
    rows = vectors.nearest(query.vector, query.candidates)
    if len(rows) > query.candidates:
        rows = sorted(rows, key=lambda row: (-row[1], row[0].int))[: query.candidates]
    return rank_vectors(rows, query, PLAN, {"rows": len(vectors.chunk_ids)})


def _search_postings(
    query: RetrieverQuery, snapshot: Snapshot, postings: Mapping[str, CollectionPostings]
) -> CandidateList:
    collections = [(stats, postings[stats.collection]) for stats in snapshot.collections if stats.weights]
    segments = [
        SegmentScores.from_postings(
            stats.collection,
            of_collection.chunks,
            stats.average,
            ((weight, of_collection.find(lexeme_id)) for lexeme_id, weight in stats.weights.items()),
        )
        for stats, of_collection in collections
    ]
    scores: dict[UUID, float] = {}
    if any(segment.terms for segment in segments):
        segment_numbers, offsets = best_offsets(segments, query.candidates)
        for number, (_, of_collection) in enumerate(collections):
            of_this = offsets[segment_numbers == number]
            ids = [of_collection.chunk_ids[offset] for offset in of_this.tolist()]
            scores |= zip(ids, segments[number].exact(of_this).tolist(), strict=True)
    read = {
        "rows": sum(len(of_collection.chunk_ids) for of_collection in postings.values()),
        "postings": sum(segment.read for segment in segments),
    }
    return rank_scores(scores, query.candidates, snapshot, PLAN, read)
