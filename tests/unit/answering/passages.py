"""Passages and contexts made by hand."""

import hashlib
import uuid

from kosmos_rag.core.types import Citation, Context, ContextPassage
from tests.results import build_result

VERSION = uuid.UUID(int=2)


def passage(text: str, *, index: int = 1, section: str = "Churn", start: int = 0, line: int = 1) -> ContextPassage:
    """A passage of a document of its own."""
    return ContextPassage(
        citation=Citation(
            index=index,
            marker=f"[{index}]",
            document_id=uuid.UUID(int=index),
            version_id=VERSION,
            version=1,
            title="Metrics",
            source=f"/kb/{index}.md",
            section=(section,),
            start=start,
            end=start + len(text),
            line_start=line,
            line_end=line + text.count("\n"),
            page_start=None,
            page_end=None,
            quote_sha256=hashlib.sha256(text.encode()).hexdigest(),
        ),
        text=text,
        start=start,
        page_start=None,
        page_end=None,
        score=1 / index,
        tokens=len(text) // 4,
        chunk_ids=(uuid.UUID(int=index),),
    )


def context(question: str, *passages: ContextPassage) -> Context:
    """A context of these passages."""
    return Context(
        question=question,
        text="",
        passages=passages,
        tokens=0,
        max_tokens=4000,
        omitted={},
        retrieval=build_result(question=question),
    )
