"""Columns that rows of a PDF page and the rows below them have in common."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile

from kosmos_rag.parsing.pdf import cells
from kosmos_rag.parsing.pdf.cells import Columns, find_columns, is_blank_value, is_value
from kosmos_rag.parsing.pdf.graphics import NEAR
from kosmos_rag.parsing.pdf.lines import Line, join_text
from kosmos_rag.parsing.pdf.text_layer import Run

_YEAR = re.compile(r"(?:19|20)\d\d")


def are_aligned(lines: Sequence[Sequence[Run]], others: Sequence[Sequence[Run]]) -> bool:
    """Return whether all cells of a row begin where those of a row above begin."""
    lefts = [run.left for run in lines[-1]]
    return len(lefts) >= cells.LEAST_ROWS and all(
        any(abs(run.left - left) < NEAR for left in lefts) for run in others[0]
    )


def find_common_columns(
    columns: Columns, lines: Sequence[Sequence[Run]], following: Sequence[Sequence[Run]]
) -> Columns | None:
    """Return the columns of rows and of rows below them.

    The result is None if they are not of one table.

    Args:
        columns: those of the rows above.
        lines: the runs of the rows above.
        following: the runs of the rows below.
    """
    if _is_title_row(lines, following) or _has_names(following, lines[0]) or are_bold_names(following, lines[-1]):
        return None
    leading = list(takewhile(lambda line: not has_values(line), following))
    if leading and _have_names(leading, lines, columns):
        return None
    row_cells = find_columns(following)
    if len(row_cells) > len(columns):
        return row_cells if _keep_columns(lines, row_cells) or _are_above(lines, row_cells) else None
    return columns if len(columns) > 1 and _keep_columns(following, columns) else None


def widen(columns: Columns, runs: Sequence[Run]) -> Columns:
    """Return columns with the cells that are in one of them alone."""
    wider = list(columns)
    for run in runs:
        inside = [at for at, (left, right) in enumerate(columns) if run.left < right and left < run.right]
        if len(inside) == 1:
            left, right = wider[inside[0]]
            wider[inside[0]] = (min(left, run.left), max(right, run.right))
    return wider


def _keep_columns(lines: Sequence[Sequence[Run]], columns: Columns) -> bool:
    """Return whether one line at most crosses each gap between columns."""
    return all(
        sum(any(run.left < left and right < run.right for run in line) for line in lines) <= 1
        for (_, left), (right, _) in pairwise(columns)
    )


def _is_title_row(lines: Sequence[Sequence[Run]], following: Sequence[Sequence[Run]]) -> bool:
    """Return whether one row is the title above a table, with fewer cells than its names."""
    first, below = lines[0], following[0]
    return len(lines) == 1 and len(first) < len(below) and first[0].right < below[0].left


def _has_names(lines: Sequence[Sequence[Run]], names: Sequence[Run]) -> bool:
    """Return whether the first row names columns.

    In letters of its own, or as words above numbers.

    Args:
        lines: the rows.
        names: the first row of the table above, whose letters other names would have.
    """
    if len(lines) < 2:
        return False
    first, *others = lines
    columns = find_columns(lines)
    if 2 * len(first) <= len(columns) or (has_values(first) and not has_years(run.text for run in first)):
        return False
    style = _styles(first)
    if (
        len(style) == 1
        and not any(_styles(line) == style for line in others)
        and (first[0].bold or _styles(names) == style)
    ):
        return True
    rows = cells.place_rows(lines, columns) if len(columns) > 1 else []
    numeric = [column for column in range(1, len(columns)) if is_numeric(rows[1:], column)]
    words = [
        column for column in numeric if rows[0].cells.get(column) and not is_value(join_text(rows[0].cells[column]))
    ]
    return 2 * len(words) > len(numeric)


def has_years(texts: Iterable[str]) -> bool:
    """Return whether the numbers among cells are years, as names of columns are."""
    numbers = list(filter(is_value, texts))
    return len(numbers) > 0 and all(map(_YEAR.fullmatch, map(str.strip, numbers)))


def are_bold_names(lines: Sequence[Sequence[Run | Line]], above: Sequence[Run | Line]) -> bool:
    """Return whether rows of bold words are below one that is not bold.

    They are the names of other columns.
    """
    return (
        max(map(len, lines)) > 1
        and all(cell.bold for line in lines for cell in line)
        and not any(cell.bold for cell in above)
        and not any(map(has_values, lines))
    )


def _are_above(lines: Sequence[Sequence[Run]], columns: Columns) -> bool:
    """Return whether lines of words are above most columns."""
    left, right = columns[0][0], columns[-1][1]
    if any(has_values(line) or line[0].left < left - NEAR or line[-1].right > right + NEAR for line in lines):
        return False
    filled = {column for row in cells.place_rows(lines, columns) for column in row.cells}
    return 2 * len(filled) > len(columns)


def has_values(line: Sequence[Run | Line]) -> bool:
    """Return whether a cell after the first one is a number, or a missing one."""
    return any(is_value(cell.text) or is_blank_value(cell.text) for cell in line[1:])


def _have_names(words: Sequence[Sequence[Run]], lines: Sequence[Sequence[Run]], columns: Columns) -> bool:
    """Return whether a line of words is below most columns of numbers of other rows."""
    if len(columns) < 2:
        return False
    rows = cells.place_rows(lines, columns)
    numeric = {column for column in range(1, len(columns)) if is_numeric(rows, column)}
    if len(numeric) < 2:
        return False
    return any(2 * len(numeric & cells.place_rows([line], columns)[0].cells.keys()) > len(numeric) for line in words)


def _styles(line: Sequence[Run]) -> set[tuple[float, bool]]:
    return {(run.size, run.bold) for run in line}


def is_numeric(rows: Sequence[cells.Row], column: int) -> bool:
    """Return whether a column has numbers.

    Args:
        rows: those that have its cells.
        column: its number, from 0.
    """
    return cells.are_values([join_text(row.cells[column]) for row in rows if row.cells.get(column)])
