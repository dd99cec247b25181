"""Compose a document from blocks with headings and pages, within size limits."""

from dataclasses import replace

from kosmos_rag.core.types import Heading, Note, ParsedDocument, TableSpan
from kosmos_rag.ingestion.parsing.clean import clean, clean_title
from kosmos_rag.ingestion.parsing.limits import OutputLimits
from kosmos_rag.ingestion.parsing.sheets import sheet_parts
from kosmos_rag.ingestion.parsing.table_headers import NO_SPANS, Rows, Spans
from kosmos_rag.ingestion.parsing.tables import Table, render

_BLOCK_SEPARATOR = "\n\n"


class Composition:
    """A document under construction, of blocks of lines.

    Blocks are separated by a blank line.
    """

    def __init__(self, limits: OutputLimits) -> None:
        """Begin with no text; every addition raises ParseError `too_large` beyond the limits."""
        self._limits = limits
        self._parts: list[str] = []
        self._length = 0
        self._at_start = True
        self._headings: list[Heading] = []
        self._pages: list[int] = []
        self._notes: list[Note] = []
        self._tables: list[TableSpan] = []

    @property
    def first_title(self) -> str | None:
        """The title of the first heading of level 1."""
        return next((heading.title for heading in self._headings if heading.level == 1), None)

    def heading(self, level: int, title: str) -> None:
        """Add a heading as a block; nothing where the title is blank."""
        if cleaned := clean_title(title):
            start = self._add(" ".join(clean(title).split()), _BLOCK_SEPARATOR)
            self._headings.append(Heading(level=level, title=cleaned, start=start))

    def block(self, text: str) -> None:
        """Add a block; nothing where the text is blank."""
        if text := clean(text).strip("\n").rstrip():
            self._add(text, _BLOCK_SEPARATOR)

    def line(self, text: str) -> None:
        """Add a line to the last block; a blank one too."""
        self._add(clean(text), "\n")

    def table(self, table: Table) -> None:
        """Add a table as a block; nothing where it has no text."""
        rendered = render(table, self._limits)
        if rendered.text:
            start = self._add(rendered.text, _BLOCK_SEPARATOR)
            self._tables.append(rendered.span(start))

    def sheet(self, rows: Rows, spans: Spans = NO_SPANS) -> None:
        """Add the tables and texts of a sheet."""
        for part in sheet_parts(rows, spans):
            if isinstance(part, Table):
                self.table(part)
            else:
                self.block(part)

    def page(self) -> None:
        """Begin a page, also one without text."""
        if self._pages:
            self._at_start = False
            self._add("", _BLOCK_SEPARATOR)
        self._pages.append(self._length)
        self._limits.check_pages(len(self._pages))
        self._at_start = True

    def note(self, code: str, message: str) -> None:
        """Add a note about guessed or unreadable parts of the file."""
        self._notes.append(Note(code=code, message=message))

    def document(self, parsed: ParsedDocument, *, title: str | None = None, under: int = 0) -> None:
        """Add a parsed document as a block with its headings and notes.

        Args:
            parsed: the document.
            title: its heading if it has none.
            under: level of the heading that contains its own headings.
        """
        if title and not parsed.headings:
            self.heading(1, title)
        start = self._add(parsed.text, _BLOCK_SEPARATOR)
        self._headings += [
            Heading(level=under + h.level, title=h.title, start=start + h.start) for h in parsed.headings
        ]
        self._notes += parsed.notes
        self._tables += [
            replace(table, start=start + table.start, end=start + table.end, body=start + (table.body or table.start))
            for table in parsed.tables
        ]

    def parsed(self, media_type: str, title: str | None) -> ParsedDocument:
        """Return the composed document."""
        return ParsedDocument(
            text="".join(self._parts),
            media_type=media_type,
            title=title,
            headings=tuple(self._headings),
            pages=tuple(self._pages),
            notes=tuple(self._notes),
            tables=tuple(self._tables),
        )

    def _add(self, text: str, separator: str) -> int:
        """Add a text, and return where it starts."""
        part = text if self._at_start else separator + text
        self._parts.append(part)
        self._length += len(part)
        self._at_start = False
        # Characters are at most the bytes; the end is checked in bytes.
        self._limits.check_text(self._length)
        return self._length - len(text)
