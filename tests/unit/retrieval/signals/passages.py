"""Passages for tests of signals."""

import uuid
from datetime import date
from typing import Any

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.signals.base import QueryContext
from tests.results import build_passage


def passage(text: str = "some text", score: float = 1.0, **fields: Any) -> Passage:
    values: dict[str, Any] = {
        "chunk_id": uuid.uuid4(), "chunk_index": 3, "section": ("A", "Section"), "chunker": "markdown",
        "collection": "kb",
    }  # fmt: skip
    return build_passage(score=score, text=text, **(values | fields))


def build_query(text: str = "How is churn calculated?", *principals: str) -> QueryContext:
    return QueryContext(text=text, principals=principals, today=date(2026, 6, 30))
