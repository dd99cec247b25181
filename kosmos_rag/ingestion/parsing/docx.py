"""Parse DOCX: a screen of the archive, then paragraphs and tables in the order of the document."""

import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import Heading, ParsedDocument
from kosmos_rag.ingestion.parsing import media_types
from kosmos_rag.ingestion.parsing.archive import screen_office
from kosmos_rag.ingestion.parsing.clean import clean, clean_title

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
_BLOCK_SEPARATOR = "\n\n"


def parse_docx(data: bytes) -> ParsedDocument:
    """Parse a DOCX, with headings by style.

    A blank line separates paragraphs; a table row is a line.

    Raises:
        ParseError: `too_large`, `encrypted` or `corrupt` for an archive that is not safe to open,
            `unsupported` for another kind of Word file.
    """
    screen_office(data, "DOCX")
    package = _open(data)
    document = package.main_document_part.document
    styles = {style.style_id: style.name or "" for style in document.styles}
    blocks: list[str] = []
    headings: list[Heading] = []
    length = 0
    for level, block in _blocks(document.element.body, styles):
        title = clean_title(block) if level else None
        if level and title:
            headings.append(Heading(level=level, title=title, start=length))
        blocks.append(block)
        length += len(block) + len(_BLOCK_SEPARATOR)
    return ParsedDocument(
        text=_BLOCK_SEPARATOR.join(blocks),
        media_type=media_types.DOCX,
        title=_core_title(package) or next((h.title for h in headings if h.level == 1), None),
        headings=tuple(headings),
    )


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


def _blocks(body: Any, styles: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Yield heading level and text of each non-blank block.

    Paragraphs and tables; 0 for no heading.
    """
    for element in _nearest(body, {_PARAGRAPH, _TABLE}):
        level, text = 0, ""
        if element.tag == _TABLE:
            text = "\n".join(filter(None, map(_row_text, _nearest(element, {_ROW}))))
        else:
            level = _level(styles.get(element.style or "", ""))
            text = _paragraph_text(element).strip("\n").rstrip()
        if text and not text.isspace():
            yield level, text.lstrip() if level else text


def _level(style: str) -> int:
    match = _HEADING_STYLE.fullmatch(style)
    return int(match[1] or 1) if match else 0


def _row_text(row: Any) -> str:
    cells = [
        " ".join(" ".join(map(_paragraph_text, _nearest(cell, {_PARAGRAPH}))).split())
        for cell in _nearest(row, {_CELL})
    ]
    return " | ".join(cells).rstrip() if any(cells) else ""


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
