"""Evidence that rows of a PDF page are a table and no list, form or prose."""

import re
from collections.abc import Sequence

from kosmos_rag.parsing.pdf import cells
from kosmos_rag.parsing.pdf.cells import is_value
from kosmos_rag.parsing.tables.table import Table

MARKER = re.compile(r"[•▪◦‣*–—○■-]|\[?\(?(?:\d{1,3}|[a-zA-Z])[\]).]?|☐|☒|☑")  # noqa: RUF001
LEADER = re.compile(r"(?:\.\s?){4,}|…{2,}")
"""Dots between a title and the number of its page."""


def is_tabular(table: Table, *, has_rules: bool, begins_alike: bool) -> bool:
    """Return whether cells are a table.

    They are no prose, list or form, and there is evidence of rows or columns.

    Args:
        table: the cells.
        has_rules: whether ruled lines are between rows.
        begins_alike: whether the cells of each column begin at one place.
    """
    if cells.fill_ratio(table.rows) < cells.LEAST_FILLED or cells.is_prose(table):
        return False
    if len(table.rows) < cells.LEAST_ROWS:
        return _is_pair(table, begins_alike=begins_alike)
    columns = [[cell for cell in column if cell] for column in zip(*table.rows, strict=True)]
    if any(LEADER.search(cell) for column in columns for cell in column) or _are_markers(columns[0], len(columns)):
        return False
    if any(2 * sum(cell.endswith(":") for cell in column) >= len(column) > 0 for column in columns[:-1]):
        return False
    body = table.rows[table.header_rows or 1 :]
    numeric = sum(
        len(values) > 1 and cells.are_values(values)
        for values in ([row[column] for row in body if row[column]] for column in range(1, len(columns)))
    )
    has_names = bool(table.header_rows) and not any(cell.endswith(":") for cell in table.rows[0])
    return 2 * numeric + has_rules + has_names + (len(columns) > 2) > 1


def _is_pair(table: Table, *, begins_alike: bool) -> bool:
    """Return whether two rows are names and values.

    All cells are there. Names are bold and above the beginnings of their values, or only the second row has numbers.
    """
    names, values = table.rows
    if not all(names) or not all(values):
        return False
    if table.header_rows and begins_alike:
        return True
    is_full = len(names) > 2
    return is_full and any(map(is_value, values)) and not any(is_value(name) or name.endswith(":") for name in names)


def _are_markers(texts: Sequence[str], columns: int) -> bool:
    """Return whether most cells of a first column are the bullets and numbers of a list."""
    markers = sum(MARKER.fullmatch(cell) is not None for cell in texts)
    return columns == 2 and markers > 0.5 * len(texts)
