"""The metadata of a passage in documents of other libraries: JSON values."""

from typing import Any

from kosmos_rag.core.types import Passage

_FIELDS = ("source", "title", "collection", "section", "lines", "pages", "location", "document_id", "version")


def build_metadata(hit: Passage) -> dict[str, Any]:
    """Return the metadata of a passage.

    The document's own metadata is overridden by the passage's location, rank and score.
    """
    values = hit.to_dict()
    return {
        "department": hit.department,
        **hit.metadata,
        **{name: values[name] for name in _FIELDS},
        "reference": f"{hit.source} | {hit.location}",
        "rank": hit.rank,
        "score": hit.score,
    }
