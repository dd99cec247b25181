"""Search in vector stores: requests, scores and results."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from kosmos_rag.apps.http.toolkit.bodies import QUESTION, RequestBody
from kosmos_rag.core.stored_files import file_name, parse_file_source
from kosmos_rag.core.types import Passage
from kosmos_rag.openai.filters import Filters
from kosmos_rag.openai.shapes import TextContent
from kosmos_rag.openai.vector_stores import scalars

Query = Annotated[str, Field(min_length=1, examples=[QUESTION])]
MaxResults = Annotated[int, Field(ge=1, le=50, strict=True)]
_DEFAULT_RESULTS = 10
_Weight = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]


class HybridSearch(RequestBody):
    """Weights of both retrievers in the fusion."""

    embedding_weight: _Weight
    text_weight: _Weight

    @model_validator(mode="after")
    def _require_weight(self) -> Self:
        if not self.embedding_weight and not self.text_weight:
            raise ValueError("no retriever would count; give one of them a weight above 0")
        return self


class RankingOptions(RequestBody):
    """How results are ranked."""

    ranker: Literal["auto", "default-2024-11-15"] | None = Field(
        default=None, description="Reranking is a setting of the service (rag.reranking)."
    )
    score_threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    hybrid_search: HybridSearch | None = None


class SearchStoreRequest(RequestBody):
    """A query, or several whose results are merged."""

    query: Query | Annotated[list[Query], Field(min_length=1, max_length=10)]
    filters: Filters | None = None
    max_num_results: MaxResults | None = Field(default=None, description="10 without it.")
    ranking_options: RankingOptions | None = None
    rewrite_query: Literal[False] | None = Field(
        default=None, description="Other wordings are a setting of the service (rag.expansion)."
    )

    @property
    def queries(self) -> list[str]:
        """The queries."""
        return [self.query] if isinstance(self.query, str) else self.query

    @property
    def limit(self) -> int:
        """Number of results to return."""
        return _DEFAULT_RESULTS if self.max_num_results is None else self.max_num_results

    @property
    def threshold(self) -> float:
        """Score below which a result is dropped."""
        return (self.ranking_options.score_threshold if self.ranking_options else None) or 0.0


class SearchResultObject(BaseModel):
    """A passage of a file."""

    file_id: str
    filename: str
    score: float
    attributes: dict[str, str | int | float | bool]
    content: list[TextContent]

    @classmethod
    def from_record(cls, hit: Passage, score: float) -> Self:
        """Convert a hit."""
        file_id, filename = parse_file_source(hit.source, hit.document_id)
        return cls(
            file_id=file_name(file_id),
            filename=filename,
            score=score,
            attributes=scalars(hit.metadata),
            content=[TextContent(text=hit.text)],
        )


class SearchPage(BaseModel):
    """The results of a search."""

    object: Literal["vector_store.search_results.page"] = "vector_store.search_results.page"
    search_query: list[str]
    data: list[SearchResultObject]
    has_more: Literal[False] = False
    next_page: None = None


def score_hits(hits: Sequence[Passage]) -> list[float]:
    """Return a score from 0 to 1 for each hit.

    Scores never rise along the list. One is the relevance by the reranker where that ran, else the cosine similarity; a
    hit that ranks before another one has at least its score. Where neither is known, it is the reciprocal rank. All of
    these depend on the question, the hit and its rank alone, and the rank on documents that the reader may read.
    """
    if any(hit.rerank_score is not None for hit in hits):
        raw_scores = [hit.rerank_score or 0.0 for hit in hits]
    elif any(hit.dense_score is not None for hit in hits):
        raw_scores = [max(0.0, hit.dense_score or 0.0) for hit in hits]
    else:
        raw_scores = [1 / hit.rank for hit in hits]
    scores, least = [], 0.0
    for score in reversed(raw_scores):
        least = max(least, min(1.0, score))
        scores.append(round(least, 6))
    return scores[::-1]


def merge_hits(
    results: Iterable[Sequence[Passage]], *, limit: int, threshold: float = 0.0
) -> list[tuple[Passage, float]]:
    """Merge the hits of several queries, each with its best score.

    Args:
        results: Hits of each query.
        threshold: Score below which a hit is dropped.
    """
    best: dict[Any, tuple[Passage, float]] = {}
    for hits in results:
        for hit, score in zip(hits, score_hits(hits), strict=True):
            if hit.chunk_id not in best or best[hit.chunk_id][1] < score:
                best[hit.chunk_id] = (hit, score)
    ranking = sorted(best.values(), key=lambda entry: (-entry[1], entry[0].rank, entry[0].chunk_id.int))
    return [entry for entry in ranking if entry[1] >= threshold][:limit]
