"""Read the tables of HTML in Markdown, by their tags.

Small Markdown files are parsed outside of the sandbox, so no HTML library reads them.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kosmos_rag.core.errors import ParseError
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.tables.builder import Cell, TableBuilder
from kosmos_rag.parsing.tables.table import TableText, collapse_whitespace, render

_START = re.compile(r"^[ \t]*<table\b", re.MULTILINE | re.IGNORECASE)
_END = re.compile(r"</table\s*>", re.IGNORECASE)
_PART = re.compile(
    r"<(?P<close>/?)(?P<name>caption|tbody|td|tfoot|th|thead|tr)\b(?P<attributes>[^<>]*)>", re.IGNORECASE
)
_SPAN = re.compile(r"\b(?P<name>colspan|rowspan)\s*=\s*[\"']?(?P<count>\d{1,5})", re.IGNORECASE)


def find_html_tables(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each table.

    It begins and ends a line, and has no table inside.
    """
    at = 0
    while (start := _START.search(text, at)) and (end := _END.search(text, start.end())):
        at = end.end()
        line_end = text.find("\n", at)
        is_alone = not text[at : None if line_end == -1 else line_end].strip()
        if is_alone and _START.search(text, start.end(), end.start()) is None:
            yield start.start(), at


@dataclass(kw_only=True, slots=True)
class _Row:
    cells: list[Cell] = field(default_factory=list)
    is_header: bool = True
    """Whether all of its cells are `th`, or it is in `thead`."""


def read_html_table(source: str, clean_text: Callable[[str], str], limits: OutputLimits) -> TableText | None:
    """Read a table of HTML.

    The result is None for one of a single column, and for one with more lines than its source.

    Args:
        source: from `<table` to `</table>`.
        clean_text: removes the markup of a cell.
        limits: of the text.
    """
    caption, rows = _read_rows(source, lambda text: collapse_whitespace(clean_text(text)))
    if max((len(row.cells) for row in rows), default=0) < 2:
        return None
    builder = TableBuilder()
    header_rows = next((number for number, row in enumerate(rows) if not row.is_header), len(rows))
    try:
        for row in rows:
            builder.add_row(row.cells)
        table = render(builder.build(header_rows=header_rows or None, caption=caption), limits)
    except ParseError:
        return None
    return table if table.text.count("\n") <= source.count("\n") else None


def _read_rows(source: str, read_text: Callable[[str], str]) -> tuple[str, list[_Row]]:
    caption = ""
    rows: list[_Row] = []
    in_head = False
    opening: re.Match[str] | None = None  # of the cell or caption
    for part in (*_PART.finditer(source), None):
        if opening:
            text = read_text(source[opening.end() : part.start() if part else None])
            if opening["name"].lower() == "caption":
                caption = text
            elif rows:
                spans = {span["name"].lower(): int(span["count"]) for span in _SPAN.finditer(opening["attributes"])}
                rows[-1].cells.append(Cell(text=text, columns=spans.get("colspan", 1), rows=spans.get("rowspan", 1)))
                rows[-1].is_header &= in_head or opening["name"].lower() == "th"
        opening = None
        name = f"{part['close']}{part['name'].lower()}" if part else ""
        if name == "tr":
            rows.append(_Row())
        elif name in ("td", "th", "caption"):
            opening = part
        elif name.strip("/") in ("tbody", "tfoot", "thead"):
            in_head = name == "thead"
    return caption, [row for row in rows if row.cells]
