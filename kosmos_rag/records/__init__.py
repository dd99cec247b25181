"""The records that travel between the stages: frozen, keyword-only, one per stage."""

from kosmos_rag.records.answers import (
    Candidate,
    Citation,
    Context,
    ContextPassage,
    Expansion,
    Filter,
    LegAccount,
    Passage,
    Retrieval,
)
from kosmos_rag.records.documents import (
    DEFAULT_COLLECTION,
    EVERYONE,
    Chunk,
    DocumentInfo,
    Heading,
    IngestFailure,
    IngestReport,
    ParsedDocument,
    SourceDocument,
    are_names,
    is_text,
)
from kosmos_rag.records.indexes import (
    IndexInfo,
    Space,
)

__all__ = [
    "DEFAULT_COLLECTION",
    "EVERYONE",
    "Candidate",
    "Chunk",
    "Citation",
    "Context",
    "ContextPassage",
    "DocumentInfo",
    "Expansion",
    "Filter",
    "Heading",
    "IndexInfo",
    "IngestFailure",
    "IngestReport",
    "LegAccount",
    "ParsedDocument",
    "Passage",
    "Retrieval",
    "SourceDocument",
    "Space",
    "are_names",
    "is_text",
]
