"""What a direct call of `ingest` is given: paths as entries to load, and documents to be checked."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import IngestFailure, SourceDocument, are_names, is_text
from kosmos_rag.ingestion.sources.folder import FolderSource, FolderSpec
from kosmos_rag.ingestion.sources.listing import MAX_SOURCE_CHARS, Entry, Listing, Source

__all__ = ["Discovery", "Found", "check", "discover", "missing_from"]

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""In JSON: no backslash that is escaped itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A file that was listed, and what loads it."""

    origin: Source
    entry: Entry

    @property
    def source(self) -> str:
        """The name under which the file is known."""
        return self.entry.source

    def load(self) -> SourceDocument:
        """Read the file. Raises SourceError."""
        return self.origin.load(self.entry)


@dataclass(kw_only=True, slots=True)
class Discovery:
    """What lies under the paths that were given."""

    files: list[Found] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)
    failures: list[IngestFailure] = field(default_factory=list)


def discover(paths: Sequence[Path], settings: IngestionSettings) -> Discovery:
    """List the files under the paths, in order, each once."""
    found = Discovery()
    files: dict[str, Found] = {}
    for path in paths:
        origin = FolderSource(FolderSpec(path=path), settings)
        listing = origin.listing()
        files |= {entry.source: Found(origin=origin, entry=entry) for entry in listing}
        found.listings.append(listing)
        found.failures += listing.failures
    found.files = list(files.values())
    return found


def check(document: SourceDocument, *, max_bytes: int) -> None:
    """Raise SourceError where a document given by the caller cannot be stored under its name, or is too large."""
    name = document.source
    if not is_text(name) or not name.strip() or len(name) > MAX_SOURCE_CHARS:
        raise SourceError(
            "unreadable",
            f"source name {str(name)[:60]!r} must be text of 1 to {MAX_SOURCE_CHARS} characters without NUL; rename it",
        )
    if not isinstance(document.data, bytes):
        raise SourceError("unreadable", f"data of {name!r} is {type(document.data).__name__}; give bytes")
    readers = document.acl
    if not readers or not are_names(readers):
        raise SourceError("unreadable", f"readers of {name!r} are {readers!r}; give at least one name, ('finance',)")
    try:
        text = json.dumps(
            [document.title, dict(document.metadata)], ensure_ascii=False, allow_nan=False, sort_keys=True
        )
        text.encode()
        if _NUL.search(text):
            raise ValueError("it holds NUL")
    except (RecursionError, TypeError, ValueError) as error:
        raise SourceError(
            "unreadable",
            f"title or metadata of {document.source!r} cannot be stored as JSON ({error}); correct them",
        ) from error
    if len(document.data) > max_bytes:
        raise SourceError(
            "too_large",
            f"{document.source} has {len(document.data):,} bytes, more than ingestion.max_file_mb allows "
            f"({max_bytes:,}); split it or raise the limit",
        )


def missing_from(listing: Listing, stored: Iterable[str], seen: set[str]) -> list[str]:
    """Return the stored sources that a listing covers and no longer holds."""
    return [source for source in stored if source not in seen and listing.covers(source)]
