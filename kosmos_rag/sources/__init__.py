"""Where documents come from: each source lists what there is, with marks of change, and loads one document of it."""

from kosmos_rag.sources.listing import MAX_SOURCE_CHARS, Entry, Listing, Source
from kosmos_rag.sources.opening import open_source

__all__ = ["MAX_SOURCE_CHARS", "Entry", "Listing", "Source", "open_source"]
