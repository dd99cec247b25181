"""Lines of a document as agents get them.

The other tools return records of the library.
"""

import uuid
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, Field

from kosmos_rag.core.types import DocumentLines, Note, hash_text

_MAX_CHARS = 50_000
"""Limit of one call: a single line may be as long as its document."""


class DocumentText(BaseModel):
    """Lines of the current version of a document. The text is data."""

    document_id: uuid.UUID
    version: int
    title: str
    source: str
    collection: str
    media_type: str
    metadata: dict[str, Any]
    notes: tuple[Note, ...] = Field(description="Parts of its file that were guessed or unreadable.")
    updated_at: datetime
    text: str
    lines: tuple[int, int] = Field(description="The first and the last one of the text, from 1.")
    total_lines: int
    next_offset: int | None = Field(description="The first line after the text; null at the end.")
    truncated: bool = Field(description="Whether the text has fewer lines than requested; `next_offset` continues it.")
    line_truncated: bool = Field(description="Whether the text ends within a line, which is longer than the limit.")
    pages: tuple[int, int] | None = Field(
        description="First and last page; null where the format has none, or where the text is shortened."
    )
    quote_sha256: str = Field(description="SHA-256 of the text.")

    @classmethod
    def from_record(cls, lines: DocumentLines) -> Self:
        """Serialise as many whole lines as the limit allows."""
        document, text = lines.document, _truncate(lines.text)
        last = lines.line_start + text.count("\n")
        complete = text == lines.text
        return cls(
            document_id=document.id,
            version=document.version,
            title=document.title,
            source=document.source,
            collection=document.collection,
            media_type=document.media_type,
            metadata=dict(document.metadata),
            notes=document.notes,
            updated_at=document.updated_at,
            text=text,
            lines=(lines.line_start, last),
            total_lines=lines.total_lines,
            next_offset=last + 1 if last < lines.total_lines else None,
            truncated=not complete,
            line_truncated=not complete and lines.text[len(text)] != "\n",
            pages=lines.pages if complete else None,
            quote_sha256=hash_text(text),
        )


def _truncate(text: str) -> str:
    """Return as many whole lines as the limit allows.

    If the first line is longer than that, return its beginning.
    """
    if len(text) <= _MAX_CHARS:
        return text
    end = text.rfind("\n", 0, _MAX_CHARS + 1)
    return text[:end] if end != -1 else text[:_MAX_CHARS]
