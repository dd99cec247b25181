"""Passages for tests of signals."""

import uuid
from dataclasses import replace
from datetime import date

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import QueryContext


def passage(text: str = "some text", score: float = 1.0, **changes: object) -> Passage:
    result = Passage(
        rank=1, score=score, chunk_id=uuid.uuid4(), document_id=uuid.UUID(int=1), version_id=uuid.UUID(int=2),
        version=1, source="/kb/a.md", title="A", media_type="text/markdown", metadata={}, chunk_index=3,
        section=("A", "Section"), start=0, end=9, line_start=3, line_end=7, page_start=None, page_end=None, text=text,
        chunker="markdown", collection="kb", dense_rank=None, dense_score=None, lexical_rank=None, lexical_score=None,
        fused_rank=1, fused_score=score, score_contributions={}, rerank_score=None,
    )  # fmt: skip
    return replace(result, **changes)  # type: ignore[arg-type]


def build_query(text: str = "How is churn calculated?", *principals: str) -> QueryContext:
    return QueryContext(text=text, principals=principals, today=date(2026, 6, 30))
