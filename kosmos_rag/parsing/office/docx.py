"""Parse DOCX: paragraphs and tables in the order of the document.

The archive is screened first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.archives.screening import refuse_doctype, screen_office
from kosmos_rag.parsing.clean import clean_property_title
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.headings import LONGEST
from kosmos_rag.parsing.limits import UNLIMITED, OutputLimits
from kosmos_rag.parsing.office.docx_running import RunningTexts
from kosmos_rag.parsing.office.docx_styles import Lists, ParagraphStyle, Styles, W, parse_outline_level, read_value
from kosmos_rag.parsing.office.docx_text import NOT_READ, PARAGRAPH, TextReader, is_bold
from kosmos_rag.parsing.office.xml_tree import find_outermost
from kosmos_rag.parsing.tables.builder import Cell, TableBuilder, shorten_repetition
from kosmos_rag.parsing.tables.table import Table, collapse_whitespace
from kosmos_rag.parsing.text.plain import parse_text
from kosmos_rag.parsing.web.html import parse_html

_TABLE, _ROW, _CELL, _EXTERNAL = f"{W}tbl", f"{W}tr", f"{W}tc", f"{W}altChunk"
_WITHOUT_BLOCKS = NOT_READ | {f"{W}{name}" for name in ("tblPr", "tblGrid", "trPr", "tcPr", "sectPr", "sdtPr")}
_find_parts = partial(find_outermost, excluded=_WITHOUT_BLOCKS)
_NAMESPACE_2003 = b"http://schemas.microsoft.com/office/word/2003/wordml"
_PARAGRAPH_PROPERTIES, _STYLE, _OUTLINE, _NUMBER = f"{W}pPr", f"{W}pStyle", f"{W}outlineLvl", f"{W}numPr"
_VALUE = f"{W}val"
_LIST_LEVELS = frozenset("012345678")
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def parse_docx(data: bytes, limits: OutputLimits = UNLIMITED) -> ParsedDocument:
    """Parse a DOCX, with headings by style.

    A blank line separates paragraphs and tables. Notes, comments and the data of charts follow their paragraph.
    Headers come first, footers last.

    Raises:
        ParseError: `too_large`, `encrypted` or `corrupt` for an archive that is not safe to open,
            `unsupported` for another kind of Word file.
    """
    data = screen_office(data, "DOCX")
    package = _open(data)
    part = package.main_document_part
    composition = Composition(limits)
    reader = _Reader(part, part.document.styles.element, limits)
    running = RunningTexts(part)
    _add_blocks(composition, (_Paragraph(text=text, is_note=True) for text in running.read("header")))
    _add_blocks(composition, reader.blocks(part.document.element.body))
    _add_blocks(composition, (_Paragraph(text=text, is_note=True) for text in running.read("footer")))
    return composition.build(media_types.DOCX, _core_title(package) or composition.first_title)


def parse_wordml(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse a document in the XML of Word 2003.

    It has the elements of DOCX in one file.

    Raises:
        ParseError: `too_large`, or `corrupt` for a DOCTYPE.
    """
    from docx.oxml import parse_xml

    refuse_doctype(data, "document", "Word XML")
    root = parse_xml(data.replace(_NAMESPACE_2003, W.strip("{}").encode()))
    composition = Composition(limits)
    reader = _Reader(_NoPackage(), root, limits)
    _add_blocks(composition, reader.blocks(root.find(f"{W}body")))
    return composition.build(media_types.WORDML, composition.first_title)


class _NoPackage:
    """Replaces the package of a document that is one file."""

    rels: Mapping[str, Any] = MappingProxyType({})
    related_parts: Mapping[str, Any] = MappingProxyType({})


def _add_blocks(composition: Composition, blocks: "Iterable[_Block]") -> None:
    for block in blocks:
        if isinstance(block, Table):
            composition.add_table(block)
        elif isinstance(block, ParsedDocument):
            composition.add_document(block)
        elif block.level:
            composition.add_heading(block.level, block.text)
        elif block.is_note:
            composition.add_block(block.text)
        else:
            composition.add_paragraph(block.text)


def _open(data: bytes) -> Any:
    from docx.opc.constants import CONTENT_TYPE
    from docx.opc.package import Unmarshaller
    from docx.opc.part import Part, PartFactory
    from docx.opc.pkgreader import PackageReader
    from docx.package import Package

    def create_part(name: Any, content_type: str, relation: str, data: bytes, package: Any) -> Any:
        # A broken header must not fail the file, so the package does not parse it.
        if content_type in (CONTENT_TYPE.WML_HEADER, CONTENT_TYPE.WML_FOOTER):
            return Part.load(name, content_type, data, package)
        return PartFactory(name, content_type, relation, data, package)

    package = Package()
    Unmarshaller.unmarshal(PackageReader.from_file(BytesIO(data)), package, create_part)
    content_type = package.main_document_part.content_type
    if content_type != CONTENT_TYPE.WML_DOCUMENT_MAIN:
        raise ParseError("unsupported", f"a Word file of type {content_type}; save it as a DOCX document")
    return package


def _core_title(package: Any) -> str | None:
    """Return the title in the file's properties.

    python-docx invents one where there are no properties.
    """
    from docx.opc.constants import RELATIONSHIP_TYPE

    has_properties = any(rel.reltype == RELATIONSHIP_TYPE.CORE_PROPERTIES for rel in package.rels.values())
    return clean_property_title(package.core_properties.title) if has_properties else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Paragraph:
    text: str
    level: int = 0
    """Of a heading; 0 for no heading."""
    is_caption: bool = False
    is_note: bool = False
    """A note, a comment or the data of a chart: it is not counted among the paragraphs."""


_Block = _Paragraph | Table | ParsedDocument


class _Reader:
    """Reads the blocks of a document."""

    def __init__(self, part: Any, styles: Any, limits: OutputLimits) -> None:
        self._part = part
        self._limits = limits
        self._texts = TextReader(part)
        self._styles = Styles(styles)
        self._lists = Lists(self._texts.parse_related_part("numbering"))

    def blocks(self, body: Any) -> Iterator[_Block]:
        """Yield the blocks in document order.

        A caption directly above a table belongs to it.
        """
        caption: _Paragraph | None = None
        for element in _block_elements(body):
            if element.tag == _TABLE:
                yield from self._tables(element, caption.text if caption else "")
                caption = None
            else:
                if caption:
                    yield caption
                caption = None
                block = self._paragraph(element) if element.tag == PARAGRAPH else self._external(element)
                if isinstance(block, _Paragraph) and block.is_caption:
                    caption = block
                elif block:
                    yield block
            for content in self._texts.take_contents():
                yield _Paragraph(text=content, is_note=True) if isinstance(content, str) else content
        if caption:
            yield caption

    def _tables(self, element: Any, caption: str) -> Iterator[Table]:
        """Yield a table, then those in its cells, under the first text of their row."""
        inside = _InnerTables()
        yield _table(element, caption, partial(self._cell_text, inside=inside), inside)
        for inner, label in inside.tables:
            yield from self._tables(inner, label)

    def _cell_text(self, cell: Any, *, inside: "_InnerTables") -> str:
        """Return the text of a cell without its tables, which are collected."""
        texts = []
        for element in _block_elements(cell):
            if element.tag == PARAGRAPH:
                texts.append(self._texts.read(element))
            elif element.tag == _TABLE:
                inside.tables.append((element, inside.label))
        return collapse_whitespace(" ".join(texts))

    def _paragraph(self, element: Any) -> _Paragraph:
        element_properties = element.find(_PARAGRAPH_PROPERTIES)
        properties = {} if element_properties is None else {child.tag: child for child in element_properties}
        style_property = properties.get(_STYLE)
        style = self._styles.find_paragraph_style(None if style_property is None else style_property.get(_VALUE))
        text = self._texts.read(element).strip("\n").rstrip()
        level = style.level
        if _OUTLINE in properties and len(text) <= LONGEST:
            level = parse_outline_level(properties[_OUTLINE].get(_VALUE, ""))
        mark = self._mark(properties.get(_NUMBER), style) if text.strip() else ""
        return _Paragraph(text=mark + text if text.strip() else "", level=level, is_caption=style.is_caption)

    def _mark(self, list_property: Any | None, style: ParagraphStyle) -> str:
        """Return the number or bullet that is printed before a paragraph.

        Its own list precedes that of its style.
        """
        number = "" if list_property is None else read_value(list_property, "numId")
        if list_property is None or not number:
            return self._lists.mark(*style.list_level) if style.list_level else ""
        level = read_value(list_property, "ilvl")
        return self._lists.mark(number, int(level) if level in _LIST_LEVELS else 0)

    def _external(self, element: Any) -> ParsedDocument | None:
        """Return included HTML or text (`altChunk`).

        The result is None for other formats.
        """
        part = self._part.related_parts.get(element.get(_RELATION))
        kind = "" if part is None else part.content_type
        if kind in ("text/html", "application/xhtml+xml"):
            return parse_html(part.blob, self._limits)
        return parse_text(part.blob) if kind == "text/plain" else None


@dataclass(kw_only=True, slots=True)
class _InnerTables:
    """Tables in the cells of a table."""

    tables: list[tuple[Any, str]] = field(default_factory=list)
    """Each with the first text of its row, of a cell before its own."""
    label: str = ""
    """The first text of the row that is read."""


def _table(table: Any, caption: str, read_text: Callable[[Any], str], inside: _InnerTables) -> Table:
    builder = TableBuilder()
    header_rows = 0
    above: dict[int, str] = {}
    for number, row in enumerate(_find_parts(table, {_ROW})):
        inside.label = ""
        cells = list(_cells(row, above, read_text, inside))
        builder.add_row(cells)
        ends = accumulate(cell.columns for cell in cells)
        above = {end - cell.columns: shorten_repetition(cell.text) for cell, end in zip(cells, ends, strict=True)}
        if header_rows == number and _properties(row, f"{W}trPr").get(f"{W}tblHeader") is not None:
            header_rows += 1
    return builder.build(header_rows=header_rows or None, caption=caption)


def _cells(row: Any, above: dict[int, str], read_text: Callable[[Any], str], inside: _InnerTables) -> Iterator[Cell]:
    """Yield the cells of a row.

    A cell that continues one above has its text.
    """
    column = _number(_properties(row, f"{W}trPr").get(f"{W}gridBefore"), 0)
    if column:
        yield Cell(text="", columns=column)
    for cell in _find_parts(row, {_CELL}):
        properties = _properties(cell, f"{W}tcPr")
        merge = properties.get(f"{W}vMerge")
        if merge is not None and merge.get(f"{W}val", "continue") == "continue":
            text = above.get(column, "")
        else:
            text = read_text(cell)
        inside.label = inside.label or shorten_repetition(text)
        columns = max(1, _number(properties.get(f"{W}gridSpan"), 1))
        yield Cell(text=text, columns=columns, is_bold=is_bold(cell))
        column += columns


def _properties(element: Any, tag: str) -> dict[str, Any]:
    """Return the properties of a row or cell by their tags.

    They come before its contents.
    """
    for child in element:
        if child.tag == tag:
            return {inner.tag: inner for inner in child}
        if child.tag in (_CELL, PARAGRAPH):
            break
    return {}


def _number(element: Any, default: int) -> int:
    value = "" if element is None else element.get(f"{W}val", "")
    return min(int(value), bounds.MAX_SPANNED_COLUMNS) if value.isdecimal() and len(value) < 10 else default


def _block_elements(root: Any) -> Iterator[Any]:
    """Yield paragraphs, tables and included files in document order.

    A table of one column only arranges the page: its contents are yielded.
    """
    for element in _find_parts(root, {PARAGRAPH, _TABLE, _EXTERNAL}):
        if element.tag == _TABLE and all(_has_one_cell(row) for row in _find_parts(element, {_ROW})):
            yield from _block_elements(element)
        else:
            yield element


def _has_one_cell(row: Any) -> bool:
    cells = _find_parts(row, {_CELL})
    return next(cells, None) is None or next(cells, None) is None
