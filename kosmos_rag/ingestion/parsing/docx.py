"""Parse DOCX: a screen of the archive, then paragraphs and tables in the order of the document."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate
from typing import Any

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.ingestion.parsing import media_types
from kosmos_rag.ingestion.parsing.archive import screen_office
from kosmos_rag.ingestion.parsing.clean import clean, clean_title
from kosmos_rag.ingestion.parsing.compose import Composition
from kosmos_rag.ingestion.parsing.limits import UNLIMITED, OutputLimits
from kosmos_rag.ingestion.parsing.table_builder import MAX_COLUMNS, Cell, TableBuilder, repeated
from kosmos_rag.ingestion.parsing.tables import Table, one_line

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MATH_TEXT = "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_PARAGRAPH, _TABLE, _ROW, _CELL, _TEXT = f"{_W}p", f"{_W}tbl", f"{_W}tr", f"{_W}tc", f"{_W}t"
_CHARACTERS = {
    f"{_W}tab": "\t",
    f"{_W}br": "\n",
    f"{_W}cr": "\n",
    f"{_W}noBreakHyphen": "-",
    _PARAGRAPH: "\n",
}
"""What an element inside a paragraph stands for; a paragraph in there is one of a text box."""
_NOT_READ = frozenset({f"{_W}pPr", f"{_W}rPr", f"{_W}del", f"{_W}moveFrom", _FALLBACK})
"""Properties, text that a tracked change has removed, and the second copy of a drawing's text."""

_HEADING_STYLE = re.compile(r"(?:Heading ([1-9])|Title)")


def parse_docx(data: bytes, limits: OutputLimits = UNLIMITED) -> ParsedDocument:
    """Parse a DOCX, with headings by style.

    A blank line separates paragraphs and tables.

    Raises:
        ParseError: `too_large`, `encrypted` or `corrupt` for an archive that is not safe to open,
            `unsupported` for another kind of Word file.
    """
    screen_office(data, "DOCX")
    package = _open(data)
    document = package.main_document_part.document
    styles = {style.style_id: style.name or "" for style in document.styles}
    composition = Composition(limits)
    for block in _blocks(document.element.body, styles):
        if isinstance(block, Table):
            composition.table(block)
        elif block.level:
            composition.heading(block.level, block.text)
        else:
            composition.block(block.text)
    return composition.parsed(media_types.DOCX, _core_title(package) or composition.first_title)


def _open(data: bytes) -> Any:
    from docx.opc.constants import CONTENT_TYPE
    from docx.package import Package

    package = Package.open(BytesIO(data))
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
    return clean_title(package.core_properties.title) if has_properties else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Paragraph:
    text: str
    level: int
    """Of a heading; 0 for no heading."""
    is_caption: bool


def _blocks(body: Any, styles: dict[str, str]) -> Iterator[_Paragraph | Table]:
    """Yield paragraphs and tables; a caption directly above a table is its own."""
    caption: _Paragraph | None = None
    for element in _nearest(body, {_PARAGRAPH, _TABLE}):
        if element.tag == _TABLE:
            yield _table(element, caption.text if caption else "")
            caption = None
            continue
        if caption:
            yield caption
        paragraph = _paragraph(element, styles)
        caption = paragraph if paragraph.is_caption else None
        if caption is None:
            yield paragraph
    if caption:
        yield caption


def _paragraph(element: Any, styles: dict[str, str]) -> _Paragraph:
    style = styles.get(element.style or "", "")
    heading = _HEADING_STYLE.fullmatch(style)
    return _Paragraph(
        text=_paragraph_text(element).strip("\n").rstrip(),
        level=int(heading[1] or 1) if heading else 0,
        is_caption=style.lower() == "caption",
    )


def _table(table: Any, caption: str) -> Table:
    builder = TableBuilder()
    header_rows = 0
    above: dict[int, str] = {}
    for number, row in enumerate(_nearest(table, {_ROW})):
        cells = list(_cells(row, above))
        builder.add_row(cells)
        ends = accumulate(cell.columns for cell in cells)
        above = {end - cell.columns: repeated(cell.text) for cell, end in zip(cells, ends, strict=True)}
        if header_rows == number and _properties(row, f"{_W}trPr").get(f"{_W}tblHeader") is not None:
            header_rows += 1
    return builder.build(header_rows=header_rows or None, caption=caption)


def _cells(row: Any, above: dict[int, str]) -> Iterator[Cell]:
    """Yield the cells of a row; one that continues a cell above has its text."""
    column = _number(_properties(row, f"{_W}trPr").get(f"{_W}gridBefore"), 0)
    if column:
        yield Cell(text="", columns=column)
    for cell in _nearest(row, {_CELL}):
        properties = _properties(cell, f"{_W}tcPr")
        merge = properties.get(f"{_W}vMerge")
        if merge is not None and merge.get(f"{_W}val", "continue") == "continue":
            text = above.get(column, "")
        else:
            text = one_line(" ".join(map(_paragraph_text, _nearest(cell, {_PARAGRAPH}))))
        columns = max(1, _number(properties.get(f"{_W}gridSpan"), 1))
        yield Cell(text=text, columns=columns)
        column += columns


def _properties(element: Any, tag: str) -> dict[str, Any]:
    """Return the properties of a row or cell by their tags; they come before its contents."""
    for child in element:
        if child.tag == tag:
            return {inner.tag: inner for inner in child}
        if child.tag in (_CELL, _PARAGRAPH):
            break
    return {}


def _number(element: Any, default: int) -> int:
    value = "" if element is None else element.get(f"{_W}val", "")
    return min(int(value), MAX_COLUMNS) if value.isdecimal() and len(value) < 10 else default


def _paragraph_text(paragraph: Any) -> str:
    parts = [
        element.text or "" if element.tag in (_TEXT, _MATH_TEXT) else _CHARACTERS.get(element.tag, "")
        for element in _descend(paragraph)
    ]
    return clean("".join(parts))


def _nearest(root: Any, tags: set[str]) -> Iterator[Any]:
    """Yield the outermost descendants with one of the tags.

    In document order.

    Content controls and tracked insertions wrap paragraphs, rows and cells at any level.
    """
    return (element for element in _descend(root, stop=tags) if element.tag in tags)


def _descend(root: Any, stop: frozenset[str] | set[str] = frozenset()) -> Iterator[Any]:
    pending = list(reversed(root))
    while pending:
        element = pending.pop()
        if element.tag in _NOT_READ:
            continue
        yield element
        if element.tag not in stop:
            pending.extend(reversed(element))
