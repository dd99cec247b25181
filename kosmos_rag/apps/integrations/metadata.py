"""What a passage says of itself, as metadata of any library's document: plain values that JSON can hold."""

from typing import Any

from kosmos_rag.core.types import Passage, page_range


def metadata_of(hit: Passage) -> dict[str, Any]:
    """Return the document's own metadata, and over them where the passage stands and how it ranks."""
    pages = page_range(hit)
    return {
        **hit.metadata,
        "source": hit.source,
        "title": hit.title,
        "collection": hit.collection,
        "section": list(hit.section),
        "lines": [hit.line_start, hit.line_end],
        "pages": None if pages is None else list(pages),
        "document_id": str(hit.document_id),
        "version": hit.version,
        "citation": f"{hit.source} | {hit.location}",
        "rank": hit.rank,
        "score": hit.score,
    }
