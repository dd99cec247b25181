"""What the database answered to one question, and the result that is made of it."""

from dataclasses import dataclass, replace

from kosmos_rag.core.types import Passage, RetrieverStats, SearchResult
from kosmos_rag.retrieval.expansion.expander import Expanded
from kosmos_rag.retrieval.query import Request
from kosmos_rag.retrieval.rerank import Reranked
from kosmos_rag.retrieval.signals.apply import SignalResult
from kosmos_rag.retrieval.timer import Watch


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What the database answered to one question."""

    where: str
    """What was searched: the tenant, or one collection of it."""
    chunks: int
    """How many of that this reader may read."""
    retrievers: dict[str, RetrieverStats]
    passages: list[Passage]
    warnings: tuple[str, ...]
    """What the caller should know."""


def result_of(
    asked: Request, expanded: Expanded, found: Found, reranked: Reranked, applied: SignalResult, watch: Watch
) -> SearchResult:
    hits = tuple(
        hit if hit.rank == rank else replace(hit, rank=rank)
        for rank, hit in enumerate(applied.passages[: asked.k], start=1)
    )
    skipped = (*(["expand"] if expanded.warnings else []), *(["rerank"] if not reranked.done else []))
    return SearchResult(
        question=asked.question,
        expansion=expanded.expansion,
        requested=asked.k,
        hits=hits,
        stages=watch.stages,
        timings_ms=watch.timings_ms(),
        retrievers=found.retrievers,
        warnings=(*expanded.warnings, *found.warnings, *([reranked.note] if reranked.note else []), *applied.warnings),
        degraded_stages=skipped,
        cached=False,
        incomplete_reason=_shortfall(found, reranked, applied) if len(hits) < asked.k else None,
        intent=applied.intent,
    )


def _shortfall(found: Found, reranked: Reranked, applied: SignalResult) -> str:
    if found.chunks == 0:
        return f"{found.where} has no documents"
    relevant, left = len(reranked.passages), len(applied.passages)
    if left < relevant:
        return f"{len(found.passages)} passages found, {left} of them left by signals: {'; '.join(applied.warnings)}"
    if relevant < len(found.passages):
        return f"{len(found.passages)} passages found, {relevant} of them relevant enough for the reranking threshold"
    reasons = "; ".join(f"{name}: {account.reason}" for name, account in found.retrievers.items() if account.reason)
    return f"only {relevant} passages are in reach of this question, its reader and its filter ({reasons})"
