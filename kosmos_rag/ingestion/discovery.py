"""Expand the items of `ingest` to documents, loaded one by one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import IngestFailure, SourceDocument
from kosmos_rag.ingestion.parts import strip_part
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
    def may_be_divided(self) -> bool:
        """Whether it becomes several documents where it is a large file of rows."""
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
    may_be_divided: bool = True

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
    may_be_divided: bool = True

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
            loaded.append(LoadedDocument(item))
            continue
        if not isinstance(item, Path):
            raise RequestError(f"{item!r} is nothing to ingest; give files, folders or SourceDocuments")
        origin = FolderSource(validate_spec(FolderSpec, "folder", {"path": item, "root": root}), settings)
        listing = origin.listing()
        files.add(origin, listing)
        discovery.failures += listing.failures
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
    duplicates: dict[str, IngestFailure] = field(default_factory=dict)

    def add(self, origin: Source, listing: Listing) -> None:
        """Add the entries of a listing."""
        for entry in listing:
            name = entry.source
            document = self.documents.setdefault(name, ListedDocument(origin=origin, entry=entry))
            if document.entry.locator["path"] != entry.locator["path"]:
                message = f"{name} is the name of two files; the first was taken: give one of them another root"
                self.duplicates[name] = IngestFailure(source=name, code="duplicate", message=message)


def find_unlisted_sources(
    listing: Listing, stored: Iterable[tuple[str, bool]], is_listed: Callable[[str], bool]
) -> list[str]:
    """Return the stored sources that a listing covers and lacks.

    The parts of a listed file are not among them.

    Args:
        listing: The completed listing of a source.
        stored: Sources of the stored documents, and whether each is a part of a file.
        is_listed: Whether the listing has a document of a name.
    """
    files = ((source, strip_part(source) if is_part else source) for source, is_part in stored)
    return [source for source, file in files if not is_listed(source) and not is_listed(file) and listing.covers(file)]


def split_windows(documents: Sequence[PendingDocument], size: int) -> Iterator[Sequence[PendingDocument]]:
    """Yield the documents in slices of at most `size`."""
    for start in range(0, len(documents), size):
        yield documents[start : start + size]
