"""Fuse the results of several questions into one."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from kosmos_rag.core.types import Expansion, Passage, QuestionActivity, SearchResult
from kosmos_rag.retrieval.fusion import Candidate, fuse, reciprocal_ranks


def fuse_results(results: Sequence[SearchResult], *, rrf_k: int) -> SearchResult:
    """Fuse results by the ranks of their hits.

    A passage that several found is one hit. The scores are not fused: those of a reranker are comparable for one
    question only. A hit has the fields of the result where its rank is best, and the fused score.

    Args:
        results: Of each question, in the order of the questions; at least one, all with the same `requested`.
        rrf_k: Constant of reciprocal rank fusion.
    """
    names = [str(number) for number in range(len(results))]
    lists = {
        # The rank as the score too: hits of equal relevance have ranks of their own.
        name: [Candidate(chunk_id=hit.chunk_id, score=-hit.rank, rank=hit.rank) for hit in result.hits]
        for name, result in zip(names, results, strict=True)
    }
    requested = results[0].requested
    fused = fuse(lists, dict.fromkeys(names, 1.0), partial(reciprocal_ranks, k=rrf_k), limit=requested)
    best = _best_hits(results)
    hits = tuple(
        replace(best[entry.chunk_id], rank=rank, score=entry.score) for rank, entry in enumerate(fused, start=1)
    )
    ranks = {name: tuple(rank for rank, entry in enumerate(fused, start=1) if name in entry.by_list) for name in names}
    return SearchResult(
        question="\n".join(result.question for result in results),
        expansion=Expansion(
            synonyms=_distinct(result.expansion.synonyms for result in results),
            wordings=_distinct(result.expansion.wordings for result in results),
        ),
        requested=requested,
        hits=hits,
        stages=_distinct(result.stages for result in results),
        timings_ms=_add_timings(results),
        retrievers={
            f"question {number} {name}": stats
            for number, result in enumerate(results, start=1)
            for name, stats in result.retrievers.items()
        },
        warnings=_distinct(result.warnings for result in results),
        degraded_stages=_distinct(result.degraded_stages for result in results),
        cached=all(result.cached for result in results),
        incomplete_reason=_incomplete_reason(results, len(hits)),
        id=results[-1].id,
        activity=tuple(_activity(result, ranks[name]) for name, result in zip(names, results, strict=True)),
    )


def _best_hits(results: Sequence[SearchResult]) -> dict[uuid.UUID, Passage]:
    best: dict[uuid.UUID, Passage] = {}
    for result in results:
        for hit in result.hits:
            if hit.chunk_id not in best or hit.rank < best[hit.chunk_id].rank:
                best[hit.chunk_id] = hit
    return best


def _activity(result: SearchResult, ranks: tuple[int, ...]) -> QuestionActivity:
    return QuestionActivity(
        question=result.question,
        returned=len(result.hits),
        ranks=ranks,
        milliseconds=result.milliseconds,
        cached=result.cached,
        warnings=result.warnings,
        incomplete_reason=result.incomplete_reason,
        operators=result.operators,
    )


def _distinct(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in names for name in part))


def _add_timings(results: Sequence[SearchResult]) -> dict[str, float]:
    added: dict[str, float] = {}
    for result in results:
        for stage, milliseconds in result.timings_ms.items():
            added[stage] = round(added.get(stage, 0.0) + milliseconds, 3)
    return added


def _incomplete_reason(results: Sequence[SearchResult], returned: int) -> str | None:
    if returned >= results[0].requested:
        return None
    reasons = _distinct([result.incomplete_reason] for result in results if result.incomplete_reason)
    return "; ".join(reasons) or None
