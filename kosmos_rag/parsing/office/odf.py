"""Parse OpenDocument texts, sheets and presentations.

Headings, lists, notes and tables are in the order of the file.
"""

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from xml.etree.ElementTree import Element

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.archives.screening import refuse_doctype, screen
from kosmos_rag.parsing.clean import clean_property_title, clean_title
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.office.boxes import Edges, order_boxes
from kosmos_rag.parsing.office.odf_running import RunningParagraphs
from kosmos_rag.parsing.office.odf_styles import (
    DRAWING,
    LEVELS,
    NAMESPACE,
    OFFICE,
    OUTLINE,
    PRESENTATION,
    TABLE,
    TEXT,
    Numbering,
    Styles,
    parse_integer,
)
from kosmos_rag.parsing.office.odf_text import HEADING, NOT_READ, PARAGRAPH, TextReader
from kosmos_rag.parsing.office.xml_tree import find_outermost
from kosmos_rag.parsing.tables.builder import Cell, TableBuilder, shorten_repetition
from kosmos_rag.parsing.tables.sheet_cells import SheetCells

_PAGE, _FRAME, _NOTES = f"{DRAWING}page", f"{DRAWING}frame", f"{PRESENTATION}notes"
_LIST, _ITEM, _TABLE, _ROW = f"{TEXT}list", f"{TEXT}list-item", f"{TABLE}table", f"{TABLE}table-row"
_CELL = f"{TABLE}table-cell"
_CELLS = frozenset({_CELL, f"{TABLE}covered-table-cell"})
_SEQUENCE = f"{TEXT}sequence"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"
_CONTENT, _STYLES, _META, _MANIFEST = "content.xml", "styles.xml", "meta.xml", "META-INF/manifest.xml"
_BULLET = "- "
_WITHOUT_TABLES = NOT_READ | {_TABLE}
_SVG = NAMESPACE % "svg-compatible"
_POINTS = {"cm": 28.35, "mm": 2.835, "in": 72.0, "pt": 1.0, "pc": 12.0, "px": 0.75}
_LENGTH = re.compile(rf"(-?\d{{1,6}}(?:\.\d{{1,6}})?)({'|'.join(_POINTS)})")


def parse_odf(data: bytes, limits: OutputLimits, *, media_type: str, hidden_cells: bool = False) -> ParsedDocument:
    """Parse an OpenDocument file.

    A slide is a page, a sheet a section. Hidden slides, and by default hidden sheets, rows and columns, are left out.

    Args:
        media_type: text, sheet or presentation.
        hidden_cells: whether to read hidden sheets, rows and columns.

    Raises:
        ParseError: `encrypted`, or `too_large`, `corrupt` or `unsupported` for an archive that is not safe to open.
    """
    root, roots = _read_parts(data, media_types.NAMES[media_type])
    composition = Composition(limits)
    styles = Styles([root, *(roots[part] for part in (_STYLES,) if part in roots)])
    if media_type == media_types.ODS:
        _SheetsReader(composition, styles, hidden_cells=hidden_cells).read(root)
    else:
        running = RunningParagraphs([root, *(roots[part] for part in (_STYLES,) if part in roots)], styles)
        for text in running.read("header"):
            composition.add_block(text)
        _Reader(composition, styles).read(root)
        for text in running.read("footer"):
            composition.add_block(text)
    title = clean_property_title(roots[_META].findtext(f".//{_TITLE}") or "") if _META in roots else None
    # The name of a sheet is no title of its workbook.
    return composition.build(media_type, title or (None if media_type == media_types.ODS else composition.first_title))


def _read_parts(data: bytes, name: str) -> tuple[Element, dict[str, Element]]:
    """Return the root of the contents, and those of other parts by their names.

    A flat file has all in one.
    """
    if not zipfile.is_zipfile(BytesIO(data)):
        root = _parse_xml(data, "document", name)
        body = root.find(f"{OFFICE}body")
        return (root if body is None else body), {_STYLES: root, _META: root}
    screen(data, name)
    with zipfile.ZipFile(BytesIO(data)) as archive:
        if _MANIFEST in archive.namelist() and b"encryption-data" in archive.read(_MANIFEST):
            raise ParseError("encrypted", f"the {name} file has a password; remove it and save the document again")
        parts = {part for part in (_STYLES, _META) if part in archive.namelist()}
        roots = {part: _parse_xml(archive.read(part), part, name) for part in (_CONTENT, *parts)}
    return roots.pop(_CONTENT), roots


def _parse_xml(part: bytes, member: str, name: str) -> Element:
    from defusedxml.ElementTree import fromstring

    refuse_doctype(part, member, name)
    root: Element = fromstring(part)
    return root


@dataclass(kw_only=True, slots=True)
class _OpenList:
    """A list whose items are read."""

    numbering: Numbering
    style: str
    level: int


@dataclass(frozen=True, slots=True)
class _End:
    """The end of an element, among those still to be read."""

    tag: str


class _Reader:
    """Adds the blocks of a text or a presentation to a composition."""

    def __init__(self, composition: Composition, styles: Styles) -> None:
        self._composition = composition
        self._styles = styles
        self._texts = TextReader(styles)
        self._outline = styles.numbering(OUTLINE)
        self._lists: list[_OpenList] = []
        self._numberings: dict[str, Numbering] = {}
        """Of the last list of each style, which the next one may continue."""
        self._mark = ""
        """Of the item whose first paragraph follows."""
        self._caption: str | None = None
        self._is_title = False
        self._is_notes = False

    def read(self, root: Element) -> None:
        """Add the blocks in document order."""
        pending: list[Element | _End] = [root]
        while pending:
            element = pending.pop()
            if isinstance(element, _End):
                self._leave(element.tag)
            elif element.tag in (PARAGRAPH, HEADING):
                self._add_text(element)
            elif element.tag == _TABLE and not _arranges_page(element):
                self._add_tables(element)
            elif element.tag not in NOT_READ and self._enter(element):
                pending.append(_End(element.tag))
                pending.extend(reversed(_order_page(element) if element.tag == _PAGE else list(element)))
        self._end_caption()

    def _enter(self, element: Element) -> bool:
        """Note where the following blocks are; return whether to read them."""
        if element.tag == _PAGE:
            self._composition.begin_page()
            return not self._styles.is_hidden("drawing-page", element.get(f"{DRAWING}style-name"))
        if element.tag == _ROW:
            return _is_visible(element)
        if element.tag == _LIST:
            self._lists.append(self._open_list(element))
        elif element.tag == _ITEM and self._lists:
            inner = self._lists[-1]
            value = parse_integer(element.get(f"{TEXT}start-value"))
            self._mark = inner.numbering.mark(inner.level, value) or _BULLET
        elif element.tag == _FRAME:
            self._is_title = element.get(f"{PRESENTATION}class") == "title"
        elif element.tag == _NOTES:
            self._is_notes = True
        return True

    def _leave(self, tag: str) -> None:
        if tag == _LIST:
            self._lists.pop()
        elif tag == _ITEM:
            self._mark = ""
        elif tag == _FRAME:
            self._is_title = False
        elif tag == _NOTES:
            self._is_notes = False

    def _open_list(self, element: Element) -> _OpenList:
        """Return the list of an element.

        A list in an item has the numbering of the outer list, one level deeper.
        """
        style = element.get(f"{TEXT}style-name")
        if self._lists:
            outer = self._lists[-1]
            level = min(outer.level + 1, LEVELS)
            if style in (None, outer.style):
                return _OpenList(numbering=outer.numbering, style=outer.style, level=level)
        else:
            level = 0
        name = style or "-"
        continued = element.get(f"{TEXT}continue-numbering") == "true" or element.get(f"{TEXT}continue-list")
        if not continued or name not in self._numberings:
            self._numberings[name] = self._styles.numbering(name)
        return _OpenList(numbering=self._numberings[name], style=name, level=level)

    def _add_text(self, element: Element) -> None:
        self._end_caption()
        text = self._texts.read(element).strip()
        mark, self._mark = self._mark, ""
        if not text:
            pass
        elif element.tag == HEADING:
            self._add_heading(element, text)
        elif self._is_title:
            self._composition.add_heading(1, text)
        elif element.find(f".//{_SEQUENCE}") is not None:
            self._caption = text
        else:
            self._composition.add_block(("Notes: " if self._is_notes else mark) + text)
            self._is_notes = False
        self._add_notes()

    def _add_heading(self, element: Element, text: str) -> None:
        level = min(max(1, parse_integer(element.get(f"{TEXT}outline-level"))), 9)
        is_numbered = not self._lists and element.get(f"{TEXT}is-list-header") != "true"
        mark = self._outline.mark(level - 1) if is_numbered else ""
        self._composition.add_heading(level, mark + text)

    def _end_caption(self) -> None:
        """Add a caption that has no table below it."""
        if self._caption:
            self._composition.add_block(self._caption)
        self._caption = None

    def _add_notes(self) -> None:
        for note in self._texts.take_notes():
            self._composition.add_block(note)

    def _add_tables(self, table: Element) -> None:
        """Add a table, then those in its cells, under the first text of their row."""
        pending = [(table, self._caption or "")]
        self._caption = None
        while pending:
            element, caption = pending.pop()
            inside: list[tuple[Element, str]] = []
            self._add_table(element, caption, inside)
            pending.extend(reversed(inside))

    def _add_table(self, table: Element, caption: str, inside: list[tuple[Element, str]]) -> None:
        builder = TableBuilder()
        rows = [row for row in _list_rows(table) if _is_visible(row)]
        for row in rows:
            builder.add_row(self._cells(row, inside))
        header = {id(row) for part in table.iter(f"{TABLE}table-header-rows") for row in part}
        count = sum(id(row) in header for row in rows)
        self._composition.add_table(builder.build(header_rows=count or None, caption=caption))
        self._add_notes()

    def _cells(self, row: Element, inside: list[tuple[Element, str]]) -> Iterator[Cell]:
        """Yield the cells of a row without their tables.

        These are collected with the first text of the row.
        """
        label = ""
        for cell in _expand_cells(row):
            if cell.tag == _CELL:
                text = self._texts.read_line(cell, excluded=_WITHOUT_TABLES)
                label = label or shorten_repetition(text)
                inside += ((inner, label) for inner in find_outermost(cell, {_TABLE}, excluded=NOT_READ))
                yield Cell(text=text, columns=_span(cell, "columns"), rows=_span(cell, "rows"))


def _list_rows(table: Element) -> Iterator[Element]:
    """Yield the rows of a table, without those of tables in its cells."""
    return find_outermost(table, {_ROW}, excluded=NOT_READ)


def _arranges_page(table: Element) -> bool:
    """Return whether a table has one column: its contents are no data."""
    return all(len(list(_expand_cells(row))) < 2 for row in _list_rows(table) if _is_visible(row))


def _order_page(page: Element) -> list[Element]:
    """Return the title of a slide, then its boxes in reading order."""
    titles = [element for element in page if element.get(f"{PRESENTATION}class") == "title"]
    return [*titles, *order_boxes([element for element in page if element not in titles], _read_edges)]


def _read_edges(element: Element) -> Edges | None:
    lengths = [_LENGTH.fullmatch(element.get(f"{_SVG}{name}", "")) for name in ("x", "y", "width", "height")]
    if None in lengths:
        return None
    left, top, width, height = (round(float(match[1]) * _POINTS[match[2]]) for match in lengths if match)
    return left, top, left + width, top + height


class _SheetsReader:
    """Adds the sheets of a workbook to a composition."""

    def __init__(self, composition: Composition, styles: Styles, *, hidden_cells: bool) -> None:
        self._composition = composition
        self._styles = styles
        self._texts = TextReader(styles)
        self._hidden_cells = hidden_cells

    def read(self, root: Element) -> None:
        """Add the sheets in their order."""
        for table in root.iter(_TABLE):
            if self._hidden_cells or not self._styles.is_hidden("table", table.get(f"{TABLE}style-name")):
                self._add_sheet(table)

    def _add_sheet(self, table: Element) -> None:
        cells = SheetCells()
        merged: list[tuple[int, int, int, int]] = []
        last = 0
        for row in table.iter(_ROW):
            count = max(1, parse_integer(row.get(f"{TABLE}number-rows-repeated")))
            if self._hidden_cells or _is_visible(row):
                elements = list(_expand_cells(row))
                for column, cell in enumerate(elements, start=1):
                    columns, rows = _span(cell, "columns"), _span(cell, "rows")
                    if columns > 1 or rows > 1:
                        merged.append((last + 1, last + rows, column, column + columns - 1))
                texts = [self._texts.read_line(cell) for cell in elements]
                for number in range(last + 1, last + min(count, bounds.MAX_REPEATS) + 1):
                    cells.add_row(number, [*texts])
            last += count
        for area in merged:
            cells.merge(*area)
        if not self._hidden_cells:
            cells.remove_columns(list(_hidden_columns(table, cells.width)))
        if not cells.is_blank:
            self._composition.add_sheet(cells.build_sheet(clean_title(table.get(f"{TABLE}name") or "")))


def _hidden_columns(table: Element, width: int) -> Iterator[int]:
    column = 0
    for element in table.iter(f"{TABLE}table-column"):
        count = max(1, parse_integer(element.get(f"{TABLE}number-columns-repeated")))
        if not _is_visible(element):
            yield from range(column, min(column + count, width))
        column += count


def _is_visible(element: Element) -> bool:
    """Return whether a row or column is neither hidden nor filtered out."""
    return element.get(f"{TABLE}visibility", "visible") == "visible"


def _expand_cells(row: Element) -> Iterator[Element]:
    """Yield the cells of a row, without the empty rest of it."""
    cells = [element for element in row if element.tag in _CELLS]
    while cells and not len(cells[-1]):
        cells.pop()
    for cell in cells:
        for _ in range(max(1, min(parse_integer(cell.get(f"{TABLE}number-columns-repeated")), bounds.MAX_REPEATS))):
            yield cell


def _span(cell: Element, axis: str) -> int:
    return max(1, min(parse_integer(cell.get(f"{TABLE}number-{axis}-spanned")), bounds.MAX_SPANNED_COLUMNS))
