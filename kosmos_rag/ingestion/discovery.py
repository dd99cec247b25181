"""Expand the items of `ingest` to documents, loaded one by one."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Protocol

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import RequestError, SourceError
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.parts import divide_file, may_have_parts, name_parts, strip_part
from kosmos_rag.ingestion.sources.folder import FolderSource, FolderSpec
from kosmos_rag.ingestion.sources.listing import Entry, Listing, Source
from kosmos_rag.ingestion.sources.spec import validate_spec


class PendingDocument(Protocol):
    """A document to ingest that is not loaded yet."""

    @property
    def source(self) -> str:
        """Name of the document within its collection."""
        ...

    @property
    def etag(self) -> str | None:
        """Version of the document at its source; None if unknown."""
        ...

    @property
    def is_listed(self) -> bool:
        """Whether a source lists it; False where the caller passed it in."""
        ...

    @property
    def parts(self) -> int | None:
        """Number of parts of its file, 0 for a file that is one document.

        The result is None where the end of the run removes what the file no longer has.
        """
        ...

    def load(self) -> SourceDocument:
        """Read the document. Raises IngestionError, DatabaseError."""
        ...

    def start_span(self) -> AbstractContextManager[None]:
        """Start the trace span of loading, parsing and chunking."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedDocument:
    """A file that a folder lists."""

    origin: Source
    entry: Entry
    etag: None = None
    """Left out: an unchanged file is recognised by its content, which costs no more than reading it."""
    is_listed: bool = True
    parts: None = None

    @property
    def source(self) -> str:
        """Name of the file: its root and its path."""
        return self.entry.source

    def load(self) -> SourceDocument:
        """Read the file. Raises SourceError."""
        return self.origin.load(self.entry)

    def start_span(self) -> AbstractContextManager[None]:
        """Use the trace span of the caller."""
        return nullcontext()


@dataclass(frozen=True, slots=True)
class LoadedDocument:
    """A document whose bytes the caller passed in."""

    document: SourceDocument
    etag: None = None
    is_listed: bool = False
    parts: None = None

    @property
    def source(self) -> str:
        """Name of the document."""
        return self.document.source

    def load(self) -> SourceDocument:
        """Return the document."""
        return self.document

    def start_span(self) -> AbstractContextManager[None]:
        """Use the trace span of the caller."""
        return nullcontext()


@dataclass(kw_only=True, slots=True)
class Discovery:
    """The documents of an `ingest` call."""

    documents: list[PendingDocument] = field(default_factory=list)
    """Files in the order of the paths, each once, then the documents that were passed in."""
    listings: list[Listing] = field(default_factory=list)
    """Of folders: documents that they cover and no longer list are removed with `prune`."""
    failures: list[IngestFailure] = field(default_factory=list)
    """Files that could not be listed."""
    parts: dict[str, int] = field(default_factory=dict)
    """Number of parts of each file that may have some; 0 for a file that is one document."""

    def drop_failed_files(self, failed: set[str]) -> None:
        """Leave out the parts of files without a stored document: the documents that they had stay.

        Args:
            failed: names of the documents that were not stored.
        """
        for parts in (self.parts, *(listing.parts for listing in self.listings)):
            for file, count in list(parts.items()):
                if failed >= name_parts(file, count):
                    del parts[file]


def discover(
    items: Iterable[SourceDocument | Path], settings: IngestionSettings, *, root: str | None = None
) -> Discovery:
    """List the files of the paths; documents are passed through.

    Args:
        items: Documents, files and folders.
        root: What the names of the files begin with; None for the name of their folder.

    Raises:
        RequestError: The root is malformed, or is that of two of the folders.
    """
    discovery = Discovery()
    files = _Files()
    loaded: list[LoadedDocument] = []
    folders: dict[str, Path] = {}
    for item in items:
        if isinstance(item, SourceDocument):
            loaded += map(LoadedDocument, _divide(item, settings, discovery))
            continue
        if not isinstance(item, Path):
            raise RequestError(f"{item!r} is nothing to ingest; give files, folders or SourceDocuments")
        origin = FolderSource(validate_spec(FolderSpec, "folder", {"path": item, "root": root}), settings)
        listing = origin.listing()
        names = files.add(origin, listing)
        discovery.failures += listing.failures
        discovery.parts |= {file: count for file, count in listing.parts.items() if file in names}
        if item.is_dir():
            if not item.samefile(folders.setdefault(origin.prefix, item)):
                raise RequestError(
                    f"the root of {folders[origin.prefix]} and of {item} is {listing.name}; "
                    "name one of them by another root, in a call of its own"
                )
            discovery.listings.append(listing)
    discovery.failures += files.duplicates.values()
    discovery.documents = [*files.documents.values(), *loaded]
    return discovery


@dataclass(kw_only=True, slots=True)
class _Files:
    """The files of several listings, the first of each name."""

    documents: dict[str, ListedDocument] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    """Path of each file by its name."""
    duplicates: dict[str, IngestFailure] = field(default_factory=dict)

    def add(self, origin: Source, listing: Listing) -> set[str]:
        """Add the entries of a listing, and return the names of their files."""
        names: set[str] = set()
        for entry in listing:
            name = strip_part(entry.source) if "part" in entry.locator else entry.source
            path = entry.locator["path"]
            is_first = self.paths.setdefault(name, path) == path
            if is_first:
                names.add(name)
                document = self.documents.setdefault(entry.source, ListedDocument(origin=origin, entry=entry))
                is_first = document.entry.locator["path"] == path
            if not is_first:
                message = f"{name} is the name of two files; the first was taken: give one of them another root"
                self.duplicates[name] = IngestFailure(source=name, code="duplicate", message=message)
        return names


def _divide(document: SourceDocument, settings: IngestionSettings, discovery: Discovery) -> Sequence[SourceDocument]:
    """Return the parts of a document, or the document where its text fits into one."""
    is_divisible = isinstance(document.source, str) and may_have_parts(document.source) and not document.media_type
    if not is_divisible or not isinstance(document.data, bytes) or document.skipped_rows:
        return [document]
    file = BytesIO(document.data)
    try:
        parts = divide_file(file, document.source, settings)
    except SourceError:
        return [document]  # the parser reports the limit
    discovery.parts[document.source] = len(parts)
    return [
        replace(
            document,
            source=part.name(document.source),
            data=part.read(file),
            media_type=part.media_type,
            skipped_rows=part.skipped,
        )
        for part in parts
    ] or [document]


def find_unlisted_sources(listing: Listing, stored: Iterable[str], listed: set[str]) -> list[str]:
    """Return the stored sources that a listing covers and lacks.

    Args:
        listing: The completed listing of a folder.
        stored: Sources of the stored documents.
        listed: Sources of the listed documents.
    """
    return [source for source in stored if source not in listed and listing.covers(source)]


def split_windows(documents: Sequence[PendingDocument], size: int) -> Iterator[Sequence[PendingDocument]]:
    """Yield the documents in slices of at most `size`."""
    for start in range(0, len(documents), size):
        yield documents[start : start + size]
