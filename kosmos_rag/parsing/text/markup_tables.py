"""Find the tables of reStructuredText, AsciiDoc and Org.

The text itself is unchanged.
"""

import re
from collections.abc import Iterator, Sequence

from kosmos_rag.core.types import TableSpan
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.tables.table import MAX_NAMES_CHARS
from kosmos_rag.parsing.text.markdown_tables import find_markdown_tables

Lines = Sequence[tuple[int, str]]
"""Offset and text of each line."""

_ORG_RULE = re.compile(r"[ \t]*\|-[-+]*\|?[ \t]*$")
# docutils, "Simple Tables" and "Grid Tables".
_SIMPLE_BORDER = re.compile(r"[ \t]*=+(?: +=+)+[ \t]*$")
_COLUMN = re.compile(r"=+")
_GRID_BORDER = re.compile(r"[ \t]*\+(?:-+\+)+[ \t]*$")
_GRID_HEADER_END = re.compile(r"[ \t]*\+(?:=+\+)+[ \t]*$")
_GRID_LINE = re.compile(r"[ \t]*[+|]")
_ADOC_BORDER = re.compile(r"\|===+[ \t]*$")


def find_org_tables(lines: Lines) -> Iterator[TableSpan]:
    """Yield the tables of Org that have a header.

    They are those of Markdown with a plus in the line below the names.
    """
    return find_markdown_tables((at, line.replace("+", "|") if _ORG_RULE.match(line) else line) for at, line in lines)


def find_rst_tables(lines: Lines) -> Iterator[TableSpan]:
    """Yield the simple tables and the grid tables of reStructuredText."""
    index = 0
    while index < len(lines):
        line = lines[index][1]
        result = None
        if _SIMPLE_BORDER.match(line):
            result = _simple_table(lines, index)
        elif _GRID_BORDER.match(line):
            result = _grid_table(lines, index)
        if result is not None:
            table, index = result
            yield table
        index += 1


def _simple_table(lines: Lines, first: int) -> tuple[TableSpan, int] | None:
    """Return the table that begins at a line, and its last line."""
    border = lines[first][1].rstrip()
    borders = [first]
    for index in range(first + 1, len(lines)):
        line = lines[index][1].rstrip()
        if line == border:
            borders.append(index)
            if len(borders) == 3:
                break
        elif not line and len(borders) == 2 and borders[1] == index - 1:
            break  # two borders around rows without a header
        elif _SIMPLE_BORDER.match(line):
            break
    if len(borders) < 2:
        return None
    header = lines[first + 1 : borders[1]] if len(borders) == 3 else []
    starts = [match.start() for match in _COLUMN.finditer(border)]
    columns = zip(starts, [*starts[1:], None], strict=True)
    cells = [[line[start:end].strip() for _, line in header] for start, end in columns]
    return _span(lines, first, borders[-1], borders[1] if header else first, cells), borders[-1]


def _grid_table(lines: Lines, first: int) -> tuple[TableSpan, int]:
    last = first
    while last + 1 < len(lines) and _GRID_LINE.match(lines[last + 1][1]):
        last += 1
    near = range(first + 1, min(last, first + bounds.SAMPLE_ROWS))
    header_end = next((index for index in near if _GRID_HEADER_END.match(lines[index][1])), first)
    rows = [line.strip().strip("|").split("|") for _, line in lines[first + 1 : header_end]]
    cells = [[cell.strip() for cell in column] for column in zip(*rows, strict=False)]
    return _span(lines, first, last, header_end, cells), last


def find_asciidoc_tables(lines: Lines) -> Iterator[TableSpan]:
    """Yield the tables of AsciiDoc.

    Its first line names the columns if a blank one follows.
    """
    first: int | None = None
    for index, (_, line) in enumerate(lines):
        if not _ADOC_BORDER.match(line):
            continue
        if first is None:
            first = index
            continue
        header = first + 1
        has_header = header + 1 < index and lines[header][1].startswith("|") and not lines[header + 1][1].strip()
        cells = [[cell.strip()] for cell in lines[header][1].split("|")[1:]] if has_header else []
        yield _span(lines, first, index, header if has_header else first, cells)
        first = None


def _span(lines: Lines, first: int, last: int, above: int, cells: Sequence[Sequence[str]]) -> TableSpan:
    """Return the table of some lines.

    Args:
        lines: of the document.
        first: index of its first line.
        last: index of its last line.
        above: index of the last line above its rows.
        cells: those of the header above each column.
    """
    names = " | ".join(" ".join(filter(None, cell)) for cell in cells).strip(" |")[:MAX_NAMES_CHARS]
    end = lines[last][0] + len(lines[last][1])
    body = lines[above + 1][0] if above < last else end
    return TableSpan(start=lines[first][0], end=end, context=(names,) if names else (), body=body)
