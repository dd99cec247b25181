"""Passages and results of searches, made by hand."""

import uuid
from typing import Any

from kosmos_rag.core.types import Expansion, Passage, SearchResult


def build_passage(rank: int = 1, score: float = 1.0, **fields: Any) -> Passage:
    """Return a passage that no retriever ranks; its fused rank and score are its own."""
    values: dict[str, Any] = {
        "rank": rank, "score": score, "chunk_id": uuid.UUID(int=rank), "document_id": uuid.UUID(int=1),
        "version_id": uuid.UUID(int=2), "version": 1, "source": "/kb/a.md", "title": "A",
        "media_type": "text/markdown", "metadata": {}, "chunk_index": 0, "section": (), "start": 0, "end": 9,
        "line_start": 3, "line_end": 7, "page_start": None, "page_end": None, "text": "some text",
        "chunker": "paragraph", "collection": "default", "dense_rank": None, "dense_score": None,
        "lexical_rank": None, "lexical_score": None, "fused_rank": rank, "fused_score": score,
        "score_contributions": {}, "rerank_score": None,
    }  # fmt: skip
    return Passage(**(values | fields))


def build_result(*hits: Passage, **fields: Any) -> SearchResult:
    """Return the result of a search without a warning."""
    values: dict[str, Any] = {
        "question": "churn", "expansion": Expansion(), "requested": max(len(hits), 1), "hits": hits, "stages": (),
        "timings_ms": {}, "retrievers": {}, "warnings": (), "degraded_stages": (), "cached": False,
        "incomplete_reason": None,
    }  # fmt: skip
    return SearchResult(**(values | fields))
