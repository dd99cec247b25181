"""Parse OpenDocument texts, sheets and presentations.

Headings, lists, notes and tables are in the order of the file.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator
from io import BytesIO
from xml.etree.ElementTree import Element

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.ingestion.parsing import media_types
from kosmos_rag.ingestion.parsing.archive import refuse_doctype, screen
from kosmos_rag.ingestion.parsing.clean import clean_title
from kosmos_rag.ingestion.parsing.compose import Composition
from kosmos_rag.ingestion.parsing.limits import OutputLimits
from kosmos_rag.ingestion.parsing.sheets import Sheet
from kosmos_rag.ingestion.parsing.table_builder import MAX_COLUMNS, Cell, TableBuilder
from kosmos_rag.ingestion.parsing.tables import one_line

_NAMESPACE = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}"
_TEXT, _TABLE = _NAMESPACE % "text", _NAMESPACE % "table"
_PAGE = (_NAMESPACE % "drawing") + "page"
_PARAGRAPH, _HEADING, _ITEM, _NOTE = f"{_TEXT}p", f"{_TEXT}h", f"{_TEXT}list-item", f"{_TEXT}note"
_TABLE_ELEMENT, _ROW = f"{_TABLE}table", f"{_TABLE}table-row"
_CELLS = frozenset({f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"})
_CHARACTERS = {f"{_TEXT}tab": "\t", f"{_TEXT}line-break": "\n"}
_NOT_READ = frozenset({f"{_TEXT}tracked-changes", f"{_TEXT}table-of-content", f"{_NAMESPACE % 'office'}annotation"})
_TITLE = "{http://purl.org/dc/elements/1.1/}title"
_MOST_REPEATS = 100
"""Of a row or cell; more are the empty rest of a sheet."""
_CONTENT, _META, _MANIFEST = "content.xml", "meta.xml", "META-INF/manifest.xml"


def parse_odf(data: bytes, limits: OutputLimits, *, media_type: str) -> ParsedDocument:
    """Parse an OpenDocument file.

    A slide is a page, a sheet a section.

    Args:
        data: the file.
        limits: limits of the result.
        media_type: text, sheet or presentation.

    Raises:
        ParseError: `encrypted`, or `too_large`, `corrupt` or `unsupported` for an archive that is not safe to open.
    """
    name = media_types.NAMES[media_type]
    screen(data, name)
    with zipfile.ZipFile(BytesIO(data)) as archive:
        if _MANIFEST in archive.namelist() and b"encryption-data" in archive.read(_MANIFEST):
            raise ParseError("encrypted", f"the {name} file has a password; remove it and save the document again")
        root = _xml(archive, _CONTENT, name)
        meta = _xml(archive, _META, name) if _META in archive.namelist() else None
    composition = Composition(limits)
    reader = _Reader(composition, is_sheet=media_type == media_types.ODS)
    reader.read(root)
    title = None if meta is None else clean_title(meta.findtext(f".//{_TITLE}") or "")
    return composition.parsed(media_type, title or composition.first_title)


def _xml(archive: zipfile.ZipFile, member: str, name: str) -> Element:
    from defusedxml.ElementTree import fromstring

    part = archive.read(member)
    refuse_doctype(part, member, name)
    root: Element = fromstring(part)
    return root


class _Reader:
    """Adds the blocks of a document to a composition."""

    def __init__(self, composition: Composition, *, is_sheet: bool) -> None:
        self._composition = composition
        self._is_sheet = is_sheet
        self._notes: list[str] = []

    def read(self, root: Element) -> None:
        """Add the blocks in document order."""
        bullet = ""
        for element in _outermost(root, {_PARAGRAPH, _HEADING, _ITEM, _TABLE_ELEMENT, _PAGE}):
            if element.tag == _PAGE:
                self._composition.page()
            elif element.tag == _ITEM:
                bullet = "- "
            elif element.tag == _TABLE_ELEMENT:
                self._add_table(element)
            else:
                self._add_text(element, bullet)
                bullet = ""
            for note in self._notes:
                self._composition.block(note)
            self._notes.clear()

    def _add_text(self, element: Element, bullet: str) -> None:
        text = self._text(element).strip()
        if element.tag == _HEADING:
            level = element.get(f"{_TEXT}outline-level", "1")
            self._composition.heading(int(level) if level in "123456789" else 1, text)
        elif text:
            self._composition.block(bullet + text)

    def _add_table(self, table: Element) -> None:
        if self._is_sheet:
            self._add_sheet(table)
            return
        builder = TableBuilder()
        for row in _visible_rows(table):
            builder.add_row(self._cells(row))
        self._composition.table(builder.build())

    def _add_sheet(self, table: Element) -> None:
        rows: list[list[str]] = []
        numbers: list[int] = []
        last = 0
        for row in table.iter(_ROW):
            count = max(1, _integer(row.get(f"{_TABLE}number-rows-repeated")))
            if _is_visible(row):
                cells = [cell.text for cell in self._cells(row)]
                kept = min(count, _MOST_REPEATS)
                rows += [cells] * kept
                numbers += range(last + 1, last + kept + 1)
            last += count
        if any(map(any, rows)):
            name = clean_title(table.get(f"{_TABLE}name") or "")
            self._composition.sheet(Sheet(rows=rows, name=name, row_numbers=numbers))

    def _cells(self, row: Element) -> Iterator[Cell]:
        cells = [element for element in row if element.tag in _CELLS]
        while cells and not len(cells[-1]):  # the empty rest of a row
            cells.pop()
        for cell in _repeated(cells, f"{_TABLE}number-columns-repeated"):
            if self._is_sheet:
                yield Cell(text=self._cell_text(cell))
            elif cell.tag == f"{_TABLE}table-cell":
                yield Cell(text=self._cell_text(cell), columns=_span(cell, "columns"), rows=_span(cell, "rows"))

    def _cell_text(self, cell: Element) -> str:
        return one_line(" ".join(self._text(part) for part in _outermost(cell, {_PARAGRAPH, _HEADING})))

    def _text(self, paragraph: Element) -> str:
        parts: list[str] = []
        pending: list[Element | str] = [paragraph]
        while pending:
            element = pending.pop()
            if isinstance(element, str):
                parts.append(element)
                continue
            parts.append(_CHARACTERS.get(element.tag, ""))
            if element.tag == f"{_TEXT}s":
                parts.append(" " * max(1, min(_integer(element.get(f"{_TEXT}c")), _MOST_REPEATS)))
            if element.tag == _NOTE:
                parts.append(self._note(element))
                continue
            for child in reversed(element):
                pending += [child.tail or "", child] if child.tag not in _NOT_READ else [child.tail or ""]
            pending.append(re.sub(r"\s+", " ", element.text or ""))
        return "".join(parts)

    def _note(self, note: Element) -> str:
        mark = f"[{one_line(''.join(note.findtext(f'{_TEXT}note-citation') or '*'))}]"
        body = note.find(f"{_TEXT}note-body")
        text = one_line(" ".join(body.itertext())) if body is not None else ""
        self._notes.append(f"{mark} {text}")
        return mark


def _visible_rows(table: Element) -> Iterator[Element]:
    return (row for row in table.iter(_ROW) if _is_visible(row))


def _is_visible(row: Element) -> bool:
    return row.get(f"{_TABLE}visibility") is None


def _outermost(root: Element, tags: Iterable[str]) -> Iterator[Element]:
    """Yield the outermost elements with one of the tags.

    Elements inside items of lists and pages follow them.
    """
    pending = [root]
    while pending:
        element = pending.pop()
        if element.tag in _NOT_READ:
            continue
        if element.tag in tags and element is not root:
            yield element
            if element.tag not in (_ITEM, _PAGE):
                continue
        pending.extend(reversed(element))


def _repeated(elements: Iterable[Element], attribute: str) -> Iterator[Element]:
    for element in elements:
        for _ in range(max(1, min(_integer(element.get(attribute)), _MOST_REPEATS))):
            yield element


def _span(cell: Element, what: str) -> int:
    return max(1, min(_integer(cell.get(f"{_TABLE}number-{what}-spanned")), MAX_COLUMNS))


def _integer(value: str | None) -> int:
    return int(value) if value and re.fullmatch(r"\d{1,6}", value) else 0
