"""Compose a document from blocks with headings and pages, within size limits."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from kosmos_rag.core.types import Heading, Note, ParsedDocument, PlaceSpan, TableSpan
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.clean import clean, clean_title
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.tables.forms import split_form
from kosmos_rag.parsing.tables.sheets import Sheet, SheetText, split_sheet
from kosmos_rag.parsing.tables.table import Table, render

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
        self._places: list[PlaceSpan] = []
        self._paragraph = 0

    @property
    def first_title(self) -> str | None:
        """The title of the first heading of level 1."""
        return next((heading.title for heading in self._headings if heading.level == 1), None)

    def add_heading(self, level: int, title: str) -> None:
        """Add a heading as a block; nothing where the title is blank."""
        if cleaned := clean_title(title):
            start = self._add(" ".join(clean(title).split()), _BLOCK_SEPARATOR)
            self._headings.append(Heading(level=level, title=cleaned, start=start))
            self._paragraph = 0

    def add_block(self, text: str) -> None:
        """Add a block; nothing where the text is blank."""
        if text := clean(text).strip("\n").rstrip():
            self._add(text, _BLOCK_SEPARATOR)

    def add_paragraph(self, text: str) -> None:
        """Add a block that is a paragraph, counted from its heading."""
        before = self._length
        self.add_block(text)
        if self._length > before:
            self._paragraph += 1
            start = before and before + len(_BLOCK_SEPARATOR)
            self._add_place(PlaceSpan(start, self._length, first_paragraph=self._paragraph))

    def add_line(self, text: str) -> None:
        """Add a line to the last block; a blank one too."""
        self._add(clean(text), "\n")

    def add_table(self, table: Table) -> None:
        """Add a table as a block, and the form above it as another.

        The result is empty where they have no text.
        """
        for part in split_form(table):
            rendered = render(part, self._limits)
            if rendered.text:
                start = self._add(rendered.text, _BLOCK_SEPARATOR)
                self._tables.append(rendered.span(start))

    def add_sheet(self, sheet: Sheet) -> None:
        """Add the tables, texts and remarks of a sheet, below its name."""
        if sheet.name:
            before = self._length
            self.add_heading(1, sheet.name)
            self._add_place(PlaceSpan(before, self._length, sheet=sheet.name))
        for part in split_sheet(sheet):
            if isinstance(part, Table):
                rendered = render(part, self._limits)
                text, rows = rendered.text, rendered.rows
            else:
                text = clean(part.text).strip("\n").rstrip()
                rows = tuple((line, line + 1) for line in range(text.count("\n") + 1))
            if text:
                start = self._add(text, _BLOCK_SEPARATOR)
                self._tables += [rendered.span(start)] if isinstance(part, Table) else []
                self._add_cells(sheet, part, text, start, rows)
        for remark in sheet.remarks:
            start = self._add(clean(remark.text), _BLOCK_SEPARATOR)
            self._add_place(PlaceSpan(start, self._length, sheet=sheet.name, cells=remark.cells))

    def _add_cells(
        self, sheet: Sheet, part: Table | SheetText, text: str, start: int, rows: Sequence[tuple[int, int]]
    ) -> None:
        """Add the places of the lines of a part.

        A very large part has one place.
        """
        lengths = [len(line) + 1 for line in text.split("\n")]
        if len(self._places) + len(lengths) > bounds.MAX_PLACES:
            lengths, rows = [sum(lengths)], [(rows[0][0], rows[-1][1])]
        ends = [start + length for length in accumulate(lengths)]
        for length, end, lines in zip(lengths, ends, rows, strict=True):
            if cells := sheet.format_cells(part, lines):
                self._add_place(PlaceSpan(end - length, end - 1, sheet=sheet.name, cells=cells))

    def _add_place(self, place: PlaceSpan) -> None:
        if len(self._places) < bounds.MAX_PLACES:
            self._places.append(place)

    def begin_page(self) -> None:
        """Begin a page, also one without text."""
        if self._pages:
            self._at_start = False
            self._add("", _BLOCK_SEPARATOR)
        self._pages.append(self._length)
        self._limits.check_pages(len(self._pages))
        self._at_start = True

    def add_note(self, code: str, message: str) -> None:
        """Add a note about guessed or unreadable parts of the file."""
        self._notes.append(Note(code=code, message=message))

    def add_document(
        self, parsed: ParsedDocument, *, title: str | None = None, parent_level: int = 0, attachment: str | None = None
    ) -> None:
        """Add a parsed document as a block with its headings and notes.

        Args:
            title: its heading if it has none.
            parent_level: level of the heading that contains its own headings.
            attachment: its name where it is one; it becomes a section.
        """
        before = self._length
        if attachment:
            self.add_heading(parent_level, attachment)
        if title and not parsed.headings:
            self.add_heading(1, title)
        start = self._add(parsed.text, _BLOCK_SEPARATOR)
        self._headings += [
            Heading(level=parent_level + h.level, title=h.title, start=start + h.start) for h in parsed.headings
        ]
        self._notes += parsed.notes
        self._tables += [
            replace(table, start=start + table.start, end=start + table.end, body=start + (table.body or table.start))
            for table in parsed.tables
        ]
        places = [
            place._replace(start=start + place.start, end=min(start + place.end, self._length))
            for place in parsed.places
        ]
        for place in _label_places(places, before, self._length, attachment) if attachment else places:
            self._add_place(place)

    def build(self, media_type: str, title: str | None) -> ParsedDocument:
        """Return the composed document."""
        return ParsedDocument(
            text="".join(self._parts),
            media_type=media_type,
            title=title,
            headings=tuple(self._headings),
            pages=tuple(self._pages),
            notes=tuple(self._notes),
            tables=tuple(self._tables),
            places=tuple(self._places),
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


def _label_places(places: Sequence[PlaceSpan], start: int, end: int, attachment: str) -> Iterator[PlaceSpan]:
    """Yield the places of an attachment, without gaps, with its name."""
    for place in places:
        if start + len(_BLOCK_SEPARATOR) < place.start:
            yield PlaceSpan(start, place.start, attachment=attachment)
        name = f"{attachment} / {place.attachment}" if place.attachment else attachment
        yield place._replace(attachment=name)
        start = place.end
    if start < end:
        yield PlaceSpan(start, end, attachment=attachment)
