"""Records of the way in: SourceDocument → ParsedDocument → Chunk.

Offsets are always characters of `ParsedDocument.text`, half open: `text[start:end]`. Lines and pages count from 1.
"""

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import PurePath
from posixpath import normpath
from typing import Any, NamedTuple

from kosmos_rag.core.types.docstrings import Described
from kosmos_rag.core.types.places import PlaceSpan

EVERYONE = "everyone"
"""The principal that every reader of a tenant holds; documents without a narrower list are readable by it."""

PERMISSION_FEED = "kosmos:permission-feed"
"""Instead of an acl: a permission feed names the readers, and the document is unreadable until it does."""

METADATA_FIELDS = frozenset({"authors", "categories", "date", "description", "keywords", "tags", "updated"})
"""Metadata that a file may set of itself.

Others, such as a department, may decide about access and rank.
"""

DEFAULT_COLLECTION = "default"
"""The collection of documents for which none is named."""


def is_text(value: object) -> bool:
    """Return whether a value is text that PostgreSQL can store.

    No NUL, no lone surrogates.
    """
    return isinstance(value, str) and "\x00" not in value and not any("\ud800" <= c <= "\udfff" for c in value)


def storable(text: str) -> str:
    """Replace NUL and lone surrogates, which PostgreSQL cannot store."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def hash_text(text: str) -> str:
    """Return the SHA-256 of a text, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def are_names(value: object) -> bool:
    """Return whether a value is a collection of texts.

    A single text is not, though it is a collection of its letters.
    """
    return isinstance(value, Collection) and not isinstance(value, str) and all(is_text(name) for name in value)


def find_department(
    metadata: Mapping[str, Any], source: str, *, key: str, by_folder: bool, departments: Collection[str] = ()
) -> str | None:
    """Return the department of a document, from its metadata or its folder.

    The result is None if it is unknown. Metadata takes precedence.

    Args:
        metadata: the document's metadata.
        source: the document's path or URI.
        key: the name of the metadata field that holds the department.
        by_folder: whether a folder of `source` may name it.
        departments: existing departments. If given, the first folder among them is used, otherwise the last folder.
    """
    value = metadata.get(key)
    if value is not None:
        return (value.strip() or None) if is_text(value) else None
    folders = _folders(source) if by_folder else ()
    if departments:
        return next((folder for folder in folders if folder in departments), None)
    return folders[-1] if folders else None


def _folders(source: str) -> tuple[str, ...]:
    """Return the folders of a path or an address, outermost first.

    A host and a query are none.
    """
    if address := re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*([^?#]*)", source):
        source = address[1]
    parts = PurePath(normpath(source)).parts
    return tuple(part for part in parts[:-1] if part not in {"/", "//"})


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceDocument:
    """A document as it comes in: bytes and where they are from."""

    source: str
    """Identity within the collection: a path that begins with a named root, a URL, or any stable name."""
    data: bytes
    title: str | None = None
    """Overrides the title that the parser finds."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    acl: tuple[str, ...] = (EVERYONE,)
    """Principals that may read it: a reader must hold at least one of them. Or `(PERMISSION_FEED,)` alone.

    If a permission feed of the collection names the document, that decides whatever is given here.
    """
    readers: tuple[str, ...] | None = None
    """Principals that its source named after the data was read; None if it names none.

    With a permission feed nobody else reads the document until the next pass of the feed: the last one may be older
    than the data.
    """
    language: str | None = None
    """PostgreSQL text search configuration: `german`, `simple`. None: `simple` for code, else the configured one."""
    media_type: str | None = None
    """Type of the data: `text/plain` for a text that is kept unchanged, even if it looks like HTML. None: detected."""
    skipped_rows: tuple[int, int] | None = None
    """Of a part of a table of separated values: rows before the ones that it lacks, and the number of these.

    Citations name the rows of the whole file.
    """

    def __post_init__(self) -> None:
        """Sort and deduplicate the acl.

        The same principals make the same access control list.
        """
        if are_names(self.acl):
            object.__setattr__(self, "acl", tuple(sorted(set(self.acl))))


@dataclass(frozen=True, kw_only=True, slots=True)
class Heading:
    """A heading found by the parser."""

    level: int
    """1 for the outermost."""
    title: str
    """Empty where a section ends and none begins."""
    start: int
    """Offset of the heading's own line (or paragraph)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Note(Described):
    """A note that a document's text is uncertain or incomplete."""

    code: str
    """Such as `encoding_uncertain`; docs/parsing.md lists them."""
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSpan:
    """A table in the text of a document."""

    start: int
    end: int
    context: tuple[str, ...]
    """Caption and names of the columns: what a passage from within the table may need to be understood."""
    body: int | None = None
    """Where the rows begin, after caption and names; None where it is not known."""


class LineBox(NamedTuple):
    """The place of a line on its page.

    Coordinates are 10,000ths of the page's width and height, from the top left of the page as it is displayed.
    """

    start: int
    end: int
    page: int
    """From 1."""
    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True, kw_only=True)
class ParsedDocument:
    """A document as text, with the structure that citations need."""

    text: str
    """Never contains NUL or lone surrogates; line ends are `\\n`."""
    media_type: str
    title: str | None = None
    headings: tuple[Heading, ...] = ()
    """In order of `start`."""
    pages: tuple[int, ...] = ()
    """Offset at which each page starts; empty where the format has no pages."""
    notes: tuple[Note, ...] = ()
    """What of the file was guessed or could not be read."""
    tables: tuple[TableSpan, ...] = ()
    """In order of `start`; none overlaps another."""
    boxes: tuple[LineBox, ...] = ()
    """In order of `start`: of lines, or of whole tables; empty where the format has no layout."""
    places: tuple[PlaceSpan, ...] = ()
    """In order of `start`, none overlaps another: cells, paragraphs, anchors, attachments."""
    metadata: Mapping[str, str | list[str]] = field(default_factory=dict)
    """What the file says of itself, by `METADATA_FIELDS`. Metadata of the source document take precedence."""
    ocr_seconds: float = 0.0
    """How long OCR took in its process."""

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        at = self.text.find("\n")
        while at != -1:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def find_line(self, offset: int) -> int:
        """Return the line of the character at `offset`."""
        return bisect_right(self._line_starts, offset)

    def find_page(self, offset: int) -> int | None:
        """Return the page of the character at `offset`; None without pages."""
        return max(1, bisect_right(self.pages, offset)) if self.pages else None

    def find_table_context(self, offset: int) -> tuple[str, ...]:
        """Return caption and column names of the table around `offset`.

        The table begins before it and ends after it.
        """
        index = bisect_left(self.tables, offset, key=lambda table: table.start) - 1
        return self.tables[index].context if index >= 0 and offset < self.tables[index].end else ()

    def tables_within(self, start: int, end: int) -> Iterator[TableSpan]:
        """Yield the tables that lie between two offsets."""
        for table in islice(self.tables, bisect_left(self.tables, start, key=lambda table: table.start), None):
            if table.end > end:
                break
            yield table

    def find_section(self, offset: int) -> tuple[str, ...]:
        """Return the headings that enclose `offset`, outermost first."""
        path: list[Heading] = []
        for heading in self.headings:
            if heading.start > offset:
                break
            while path and path[-1].level >= heading.level:
                path.pop()
            path.append(heading)
        return tuple(heading.title for heading in path if heading.title)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """A piece of a document, with everything a citation of it needs.

    `parsed.text[start:end] == text`.
    """

    chunk_index: int
    """Position among the document's chunks, from 0."""
    start: int
    end: int
    text: str
    section: tuple[str, ...]
    """Enclosing headings, outermost first, of the text after those that lead the chunk."""
    line_start: int
    line_end: int
    page_start: int | None
    page_end: int | None
    tokens: int
    """Counted by the embedding model's own tokenizer, special tokens not included."""
    chunker: str
    """Which splitter made it: semantic, recursive, markdown, paragraph or hierarchical."""
    fallback_reason: str | None = None
    """Why the configured splitter did not make it; None when it did."""
    parent_span: tuple[int, int] | None = None
    """Span of what is shown around it, its section or a part of that; only hierarchical chunks have one."""
    table_context: tuple[str, ...] = ()
    """Caption and names of the columns of the table that the chunk begins within."""
    place_spans: tuple[PlaceSpan, ...] = ()
    """The places of its text in the file."""
