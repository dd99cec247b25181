"""One model of tables for all formats, and their text.

Each row of the text can be read alone.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

from kosmos_rag.core.types import TableSpan
from kosmos_rag.parsing.clean import clean, clean_title
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.tables.headers import MAX_NAME_CHARS, HeaderRows, Rows, Spans, find_header

MAX_NAMES_CHARS = 500
"""Of all names of columns, where chunks repeat them."""
_UNIT_LEVEL = re.compile(r" / ([(\[])")
"""A unit in brackets below a name is a part of it: `Weight (kg)`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table of rows and columns.

    Rows may differ in length. A text has no line ends and no white space around it.
    """

    rows: Rows
    """Texts by row and column. A cell of several rows is repeated in each; of several columns it is in the first."""
    spans: Spans = field(default_factory=dict)
    """Number of columns of a cell, by row and column, where it has more than one."""
    header_rows: int | None = None
    """Leading rows that name the columns; None to find them, and title rows above them, by the kinds of the cells."""
    header_columns: int = 0
    """1 where the first column names the rows of a table without header rows: `Founded: 1815`."""
    has_labels: bool = False
    """Labels and values alternate in each row of a table without a header: `Name: Ada; Born: 1815`."""
    caption: str = ""
    position: tuple[int, int] | None = None
    """Row and column of its first cell in the sheet, from 0; None where it is no part of a sheet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableText:
    """A rendered table."""

    text: str
    """The caption and the names of the columns, then the rows, a line each."""
    context: tuple[str, ...]
    """Caption and names of the columns, where the table has them: what a row may need to be understood."""
    body: int
    """Where the rows begin in the text."""
    rows: tuple[tuple[int, int], ...]
    """Rows of the table of each line of the text, half open; those of the header for its names and caption."""

    def span(self, start: int) -> TableSpan:
        """Return the span of the table in a document.

        Args:
            start: offset of the table's text in the document.
        """
        return TableSpan(start=start, end=start + len(self.text), context=self.context, body=start + self.body)


def collapse_whitespace(text: str) -> str:
    """Collapse white space, as the text of a cell needs it."""
    return " ".join(text.split())


def render(table: Table, limits: OutputLimits) -> TableText:
    """Render a table to text.

    A row below a header reads `Plan: Basic; Seats: 15; Price: 4500`, another one `Basic | 15 | 4500`. A name joins the
    header cells above a column: `2024 / Q1`. Blank rows give a blank line.

    Raises:
        ParseError: `too_large`, more text than the limits allow.
    """
    header = _header(table)
    titles = (collapse_whitespace(" ".join(row)) for row in table.rows[: header.first])
    caption = "\n".join(filter(None, dict.fromkeys([collapse_whitespace(table.caption), *titles])))
    levels = _name_levels(table, header)
    header_line = _join(_join_levels(levels))
    above = header.first + header.count
    lines = [line for text in (caption, header_line) if text for line in text.split("\n")]
    rows = [(0, above)] * len(lines)
    body = size = sum(len(line) + 1 for line in lines)
    limits.check_text(size)
    short = _join_levels([[name[:MAX_NAME_CHARS] for name in row] for row in levels])
    for index, line in enumerate(_row_lines(table, header, short), start=above):
        size += len(line) + 1
        limits.check_text(size)
        if line or lines[-1:] != [""]:
            lines.append(line)
            rows.append((index, index + 1))
    context = (clean_title(caption), clean(header_line[:MAX_NAMES_CHARS]))
    joined = clean("\n".join(lines))
    text = joined.strip("\n")
    blank = len(joined) - len(joined.lstrip("\n"))
    return TableText(
        text=text,
        context=tuple(filter(None, context)),
        body=min(body, len(text)),
        rows=tuple(rows[blank : blank + text.count("\n") + 1]),
    )


def _header(table: Table) -> HeaderRows:
    if table.header_rows is None:
        return find_header(table.rows, table.spans)
    titles = _count_titles(table)
    if 0 < titles == table.header_rows:
        spans = {(row - titles, column): columns for (row, column), columns in table.spans.items() if row >= titles}
        header = find_header(table.rows[titles:], spans)
        return HeaderRows(first=titles + header.first, count=header.count, columns=header.columns)
    return HeaderRows(first=titles, count=table.header_rows - titles, columns=table.header_columns)


def _count_titles(table: Table) -> int:
    """Count the leading header rows of one cell over the whole table."""
    width = max(map(len, table.rows), default=0)
    count = 0
    while count < (table.header_rows or 0) and table.spans.get((count, 0), 1) >= width > 1:
        count += 1
    return count


def _name_levels(table: Table, header: HeaderRows) -> list[list[str]]:
    """Return the header cells above each column, for each header row."""
    indexes = range(header.first, header.first + header.count)
    width = max((len(table.rows[index]) for index in indexes), default=0)
    return [_spread(table, index, width if index < indexes[-1] else 0) for index in indexes]


def _join_levels(levels: Sequence[Sequence[str]]) -> list[str]:
    """Return the name of each column from its header cells.

    They are joined from top to bottom without repetition.
    """
    columns = zip_longest(*levels, fillvalue="")
    return [_UNIT_LEVEL.sub(r" \1", " / ".join(dict.fromkeys(filter(None, column)))) for column in columns]


def _spread(table: Table, index: int, width: int) -> list[str]:
    """Repeat each header cell over the columns that it covers.

    In an upper row without merged cells, as CSV files have, it covers the gap after it, up to `width`.
    """
    row = table.rows[index]
    names = list(row)
    spans = {column: table.spans[index, column] for column in range(len(row)) if (index, column) in table.spans}
    for column, columns in spans.items():
        names[column : column + columns] = [row[column], *[row[column][:MAX_NAME_CHARS]] * (columns - 1)]
    if not spans:
        names += [""] * (width - len(names))
        backwards = _is_right_aligned(names)
        for column in range(width - 2, 0, -1) if backwards else range(1, width):
            names[column] = names[column] or names[column + 1 if backwards else column - 1][:MAX_NAME_CHARS]
    return names


def _is_right_aligned(names: Sequence[str]) -> bool:
    """Return whether names are above the last columns that they cover.

    These groups are of one size, up to the last column, behind one column of row names at most.
    """
    filled = [column for column, name in enumerate(names) if name]
    sizes = {after - before for before, after in pairwise(filled)}
    if len(sizes) != 1 or filled[-1] != len(names) - 1:
        return False
    (size,) = sizes
    return size > 1 and filled[0] - (size - 1) in (0, 1)


def _row_lines(table: Table, header: HeaderRows, names: Sequence[str]) -> Iterator[str]:
    if table.has_labels:
        for row in table.rows:
            yield _join_named_cells(row[1::2], [label.rstrip(": ") for label in row[::2]])
        return
    with_spans = {index for index, _ in table.spans}
    for index in range(header.first + header.count, len(table.rows)):
        row = table.rows[index]
        if names and index in with_spans:
            yield _join_named_cells(row, _name_cells(table, index, names))
        elif names:
            yield _join_named_cells(row, names)
        elif header.columns and row and row[0]:
            yield _join_named_cells([_join(row[1:]) or row[0]], [row[0].rstrip(": ")] if any(row[1:]) else [])
        elif index in with_spans:
            yield _join(list(_list_cells(table, index)))
        else:
            yield _join(row)


def _list_cells(table: Table, index: int) -> Iterator[str]:
    """Yield the cells of a row without positions that others cover."""
    end = 0
    for column, cell in enumerate(table.rows[index]):
        if cell or column >= end:
            yield cell
        end = max(end, column + table.spans.get((index, column), 1))


def _join(cells: Sequence[str]) -> str:
    return " | ".join(cells).strip(" |")


def _join_named_cells(row: Sequence[str], names: Sequence[str]) -> str:
    parts = []
    for column, cell in enumerate(row):
        if cell:
            name = names[column] if column < len(names) else ""
            parts.append(f"{name}: {cell}" if name else cell)
    return "; ".join(parts)


def _name_cells(table: Table, index: int, names: Sequence[str]) -> list[str]:
    """Return the names for the cells of a row with merged cells.

    A cell across the whole table belongs to no column.
    """
    joined = [*names, *[""] * (len(table.rows[index]) - len(names))]
    for column in range(len(table.rows[index])):
        width = table.spans.get((index, column), 1)
        if width >= len(names):
            joined[column] = ""
        elif width > 1:
            covered = dict.fromkeys(filter(None, names[column : column + width]))
            joined[column] = ", ".join(covered)[:MAX_NAMES_CHARS]
    return joined
