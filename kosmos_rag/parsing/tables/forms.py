"""Forms above a table: rows of a label and its value over several columns."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from kosmos_rag.parsing.tables.headers import (
    LEAST_ROWS,
    MAX_HEADER_ROWS,
    NumberStarts,
    Rows,
    Spans,
    are_pairs,
    find_header,
    has_labels,
    has_values,
    is_ambiguous,
    is_label,
)
from kosmos_rag.parsing.tables.table import Table


def split_form(table: Table) -> Iterator[Table]:
    """Yield the form on top of a table, if any, and its other rows.

    A row of a form has fewer cells than the table has columns, and a label before its value. One such row may be the
    upper row of a header; several are none.
    """
    if table.header_rows is not None:
        yield table
        return
    width = max((_width(table, index) for index in range(len(table.rows))), default=0)
    rows = [_cells(table, index, width) for index in range(len(table.rows))]
    form = list(takewhile(lambda cells: cells is not None and len(cells) < width, rows))
    pairs = sum(cells is not None and len(cells) == 2 and is_label(cells[0]) for cells in form)
    if len(form) < LEAST_ROWS or pairs < LEAST_ROWS or width < LEAST_ROWS + 1:
        yield from split_labels(table)
        return
    texts = [_pair(cells) for cells in form if cells]
    yield Table(rows=texts, header_rows=0, header_columns=1, caption=table.caption)
    count = len(form)
    if count < len(rows):
        spans = {(row - count, column): columns for (row, column), columns in table.spans.items() if row >= count}
        yield from split_labels(Table(rows=table.rows[count:], spans=spans))


def split_labels(table: Table, *, is_whole: bool = False) -> Iterator[Table]:
    """Yield the labels and values on top of a table, and its other rows.

    A table of four words has no header: its first row may be a label with its value.

    Args:
        is_whole: whether it is all that a sheet has: then it begins with a header.
    """
    if table.header_rows is not None:
        yield table
        return
    numbers = NumberStarts(table.rows)
    at = 0 if table.spans else numbers.find_lower_header()
    title = len(list(takewhile(lambda row: row and not any(row[1:]), table.rows[:at])))
    if are_pairs(table.rows[title:at], len(table.rows[at]) if at else 0):
        first, count = title, at
    else:
        first, count = 0, at if has_labels(table.rows[:at]) else len(table.rows)
    has_header = count == len(table.rows) and numbers.are_below_names()
    if table.spans or has_header or not (0 < at == count or has_labels(table.rows)):
        yield replace(table, header_rows=0) if is_ambiguous(table.rows) and not is_whole else table
        return
    caption = " ".join(filter(None, [table.caption, *(row[0] for row in table.rows[:first])]))
    yield replace(_cut(table, first, count), caption=caption, header_rows=0, has_labels=True)
    if count < len(table.rows):
        yield _cut(table, count, len(table.rows))


def _cut(table: Table, first: int, end: int) -> Table:
    """Return rows of a table without merged cells."""
    position = table.position and (table.position[0] + first, table.position[1])
    return Table(rows=table.rows[first:end], position=position)


def _width(table: Table, index: int) -> int:
    last = len(table.rows[index]) - 1
    return last + table.spans.get((index, last), 1) if last >= 0 else 0


def _cells(table: Table, index: int, width: int) -> Sequence[str] | None:
    """Return the cells of a row that fill its table.

    The result is None if a cell is empty, or the row is shorter.
    """
    cells: list[str] = []
    column = 0
    row = table.rows[index]
    while column < len(row):
        if not row[column]:
            return None
        cells.append(row[column])
        column += table.spans.get((index, column), 1)
    return cells if column >= width else None


def _pair(cells: Sequence[str]) -> tuple[str, ...]:
    """Return a label and its value, or one cell: a row of several texts is one."""
    if len(cells) == 2 and not any(":" in cell.rstrip(":") for cell in cells[:1]):
        return tuple(cells)
    return (" | ".join(cells),)


def find_bold_names(rows: Rows, spans: Spans, bold: Sequence[Sequence[bool]]) -> tuple[int | None, bool]:
    """Return how many rows of bold letters name columns, and whether labels in bold name values.

    The number is None where letters show nothing, or the cells show more rows.

    Args:
        bold: whether each cell with a text is bold, by row.
    """
    is_full = all(marks and len(marks) == len(row) and len(row) % 2 == 0 for row, marks in zip(rows, bold, strict=True))
    if rows and is_full and not spans and all(all(row[::2]) and not any(row[1::2]) for row in bold):
        # A column of row names may be bold too.
        return (None, False) if NumberStarts(rows).are_below_names() else (0, True)
    count = next((number for number, row in enumerate(bold) if not row or not all(row)), 0)
    is_title = not spans and bool(bold) and len(bold[0]) == 1  # it is found by its place
    if not count or is_title:
        return None, False
    is_header = find_header(rows, spans).count <= count <= MAX_HEADER_ROWS and not has_values(rows, count)
    return count if is_header else None, False
