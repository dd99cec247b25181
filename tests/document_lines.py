"""Lines of a document, as the library gives them out."""

import uuid
from datetime import UTC, datetime

from kosmos_rag.core.types import DocumentInfo, DocumentLines


def build_lines(text: str, *, start: int = 0, line_start: int = 1, total: int | None = None) -> DocumentLines:
    """Lines of a document that has these words from a place on, and `total` lines: else no more than these."""
    line_end = line_start + text.count("\n")
    info = DocumentInfo(
        id=uuid.uuid4(),
        source="leave.md",
        collection="default",
        title="Leave",
        media_type="text/markdown",
        language="english",
        version=1,
        content_hash="",
        bytes=len(text),
        chunks=1,
        metadata={},
        updated_at=datetime.now(UTC),
    )
    return DocumentLines(
        document=info,
        version_id=uuid.uuid4(),
        text=text,
        start=start,
        line_start=line_start,
        line_end=line_end,
        total_lines=total or line_end,
        page_start=None,
        page_end=None,
        total_pages=0,
        chunk_ids=(),
    )
